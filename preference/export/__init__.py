"""How kept pairs become files: formats of trainers, Parquet, and the summary beside them; decides no label."""
