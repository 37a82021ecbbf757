"""SQL: the papers' query forms, typed as they stand; `front.py` is the file to read first."""
