"""What all studies have in common: declaration, plan, execution, checks, claims, reports."""
