"""What all pages share: offline, sealed, one file."""
