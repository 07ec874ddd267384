"""What commands and Python call: sessions that plan, train, resume and report."""
