package algorithms

// tokenBucket starts with burst tokens (default: requests), refilled
// continuously at requests per window; a hit takes one.
var tokenBucket = onMeter("token_bucket", "tb", func(l *Limit) uint32 { return l.Requests })
