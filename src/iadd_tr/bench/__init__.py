"""How long each part takes beside the least it could take on the same device."""
