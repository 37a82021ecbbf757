"""`matwin query`: a continuous query from a job file, with a status on a terminal and on a page."""
