package service

import (
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.org/rls/pkg/descriptors"
)

// Request is a caller's message, which is read once.
type Request struct {
	domain      string
	descriptors []descriptor
	entries     []descriptors.Entry // of all descriptors, one after the other
	hitsAddend  uint32              // as sent; 0 is absent
}

// Domain is the name of the rules that the caller asks for.
func (r *Request) Domain() string { return r.domain }

// Descriptors is the number of descriptors.
func (r *Request) Descriptors() int { return len(r.descriptors) }

// requests holds empty requests for reuse.
var requests = sync.Pool{New: func() any { return new(Request) }}

// release empties r, keeps the memory of its slices, and returns r to the pool.
func (r *Request) release() {
	if cap(r.descriptors) > mostKept || cap(r.entries) > mostKept*mostKept {
		return
	}
	*r = Request{descriptors: emptied(r.descriptors), entries: emptied(r.entries)}
	requests.Put(r)
}

// descriptor is one descriptor of a request.
type descriptor struct {
	entries  []descriptors.Entry
	hits     uint64 // to charge or to give back; 0 only checks
	ownHits  bool   // hits comes from the descriptor, not from the request
	refund   bool   // give hits back
	override override
}

// override is the limit that a request brings along for one of its descriptors.
type override struct {
	given         bool
	requests      uint32
	unit          int32 // envoy.type.v3.RateLimitUnit as sent, which may be no unit
	multiplier    uint32
	ownMultiplier bool // multiplier comes from the request; else it is 1
}

// check refuses a request that cannot be decided, and one beyond the caps.
// Descriptors without entries are valid: Envoy sends them.
func (c *Caps) check(r *Request) error {
	switch {
	case r.domain == "":
		return invalid("rate limit domain must not be empty; set the field domain to a domain of the rules")
	case len(r.descriptors) == 0:
		return invalid("rate limit descriptor list must not be empty; set the field descriptors to at least one descriptor")
	case c.Descriptors > 0 && len(r.descriptors) > c.Descriptors:
		return invalid("descriptors: %d in one request, at most %d are allowed (REQUEST_MAX_DESCRIPTORS)", len(r.descriptors), c.Descriptors)
	}
	for i := range r.descriptors {
		d := &r.descriptors[i]
		if c.Entries > 0 && len(d.entries) > c.Entries {
			return invalid("descriptors[%d].entries: %d in one descriptor, at most %d are allowed (REQUEST_MAX_ENTRIES)", i, len(d.entries), c.Entries)
		}
		for j, e := range d.entries {
			if n := len(e.Key) + len(e.Value); c.EntryBytes > 0 && n > c.EntryBytes {
				return invalid("descriptors[%d].entries[%d]: key and value have %d bytes, at most %d are allowed (REQUEST_MAX_ENTRY_BYTES)", i, j, n, c.EntryBytes)
			}
		}
	}
	return nil
}

// invalid is the error of a request that is wrong. Its text names the field and
// what would be right, and never has a value of the request that may identify
// a person.
func invalid(format string, args ...any) error {
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// limit returns the limit that takes the place of rule's limits. It has the amount
// and the window of o, and everything else of the rule's first limit, or of the
// domain's default when rule is nil or has no limits.
func (o *override) limit(domain *descriptors.Domain, rule *descriptors.Rule) (descriptors.Limit, error) {
	return domain.Override(rule, o.requests, descriptors.Unit(o.unit), o.multiplier)
}
