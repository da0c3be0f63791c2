"""Claims, one file per family; `analysis.claims.base` judges them."""
