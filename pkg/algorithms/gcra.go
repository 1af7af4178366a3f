package algorithms

// gcra spaces hits evenly, one per window/requests, and tolerates burst of
// them at once (default 1).
var gcra = row{
	name:    "gcra",
	tag:     tagged("gcra"),
	burst:   true,
	prepare: prepareMeter(func(*Limit) uint32 { return 1 }),
	plan:    planMeter,
	judge:   judgeMeter,
}
