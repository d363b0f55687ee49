"""Files of the platform's three template generations, rendered from the one resource set; nothing is written down twice."""
