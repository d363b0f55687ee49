"""What is judged, one module for each thing; every check is a pure function from the facts to findings."""
