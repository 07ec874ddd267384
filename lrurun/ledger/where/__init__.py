"""`--where`: conditions on runs and their order.

`grammar` reads a condition, `names` has the names that it may have, `sql` asks the database.
"""
