"""Effects of answers by others: experts, prefixes, stored successes, splices, few strong samples."""
