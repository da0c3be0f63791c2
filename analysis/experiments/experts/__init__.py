"""What answers of others bring: experts, prefixes, own successes, splices, few strong samples."""
