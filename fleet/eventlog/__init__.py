"""What a fleet lived through: one format, its measure, its pictures and its receipts."""
