package algorithms

// tokenBucket starts with burst tokens (default: requests), refilled
// continuously at requests per window; a hit takes one.
var tokenBucket = row{
	name:    "token_bucket",
	tag:     tagged("tb"),
	burst:   true,
	prepare: prepareMeter(func(l *Limit) uint32 { return l.Requests }),
	plan:    planMeter,
	judge:   judgeMeter,
}
