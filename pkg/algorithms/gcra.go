package algorithms

// gcra spaces hits evenly, one per window/requests, and tolerates burst of
// them at once (default 1).
var gcra = onMeter("gcra", "gcra", func(*Limit) uint32 { return 1 })
