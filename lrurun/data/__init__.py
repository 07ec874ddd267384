"""Tasks: data sets with a question, how their data are made, copied, prepared and read."""
