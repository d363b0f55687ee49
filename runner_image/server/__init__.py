"""The code-session server: the five routes the Context API speaks to a sandbox, correct where the stock container is not.

It runs inside the sandbox beside hostile code, so it is small, starts fast and imports no framework but uvicorn: a
plain ASGI application costs 95 ms and 6 MB less at start than one on Starlette, in a sandbox of half a gigabyte.
"""
