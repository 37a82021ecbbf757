"""`matwin state`: a look into what a continuous query has committed, without running it."""
