"""Figures, tables and the report: CSV and run.json in, pictures and text out. Imports no torch."""
