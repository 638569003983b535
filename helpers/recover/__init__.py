"""One room a stage: look (read only), plan (a list of changes), apply."""
