"""The scripted model: a Messages endpoint that plays a file, so that the whole journey runs without a key.

`script` says what a script file may hold, `conversation` decides which step a request asks for, `playback` gives the
answer its shape on the wire, `app` is the ASGI app, `endpoint` serves it, `demo_repository` makes the repository that
the shipped scripts work on.
"""
