package algorithms

// cellRate is the strategy gcra, which spaces hits evenly, one per window/requests, and tolerates
// burst of them at once (default 1).
var cellRate = onMeter("gcra", "gcra", func(*Limit) uint32 { return 1 })
