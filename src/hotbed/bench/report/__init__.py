"""`hotbed bench report`: tables, plots and aims from the rows; the README's tables."""
