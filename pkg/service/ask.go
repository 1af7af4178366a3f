package service

import "example.org/rls/pkg/descriptors"

// Ask is a request in plain types, of a caller that is no RPC: tests of rules,
// the replay of a log, the admin API. [NewRequest] makes a Request of it.
type Ask struct {
	Domain string
	// Hits is the cost of descriptors that have no Hits of their own, as
	// hits_addend of the message is; 0 is absent and costs 1.
	Hits        uint32
	Descriptors []AskDescriptor
}

// AskDescriptor is one descriptor of an Ask.
type AskDescriptor struct {
	Entries []descriptors.Entry
	Hits    *uint64   // the cost; 0 only checks, nil is the cost of the Ask
	Refund  bool      // give the hits back
	Limit   *AskLimit // in place of the rule's limits; nil keeps them
}

// AskLimit is the limit that a request brings along. The service refuses a Unit
// that is not valid.
type AskLimit struct {
	RequestsPerUnit uint32
	Unit            descriptors.Unit
	Multiplier      uint32 // the window is Multiplier × Unit; 0 is 1
}

// NewRequest returns the request that UnmarshalBinary reads from the message with
// the same fields. It shares the entries of a, which must not change while the
// request is in use.
func NewRequest(a *Ask) *Request {
	r := &Request{domain: a.Domain, hitsAddend: a.Hits, descriptors: make([]descriptor, len(a.Descriptors))}
	for i := range a.Descriptors {
		asked, d := &a.Descriptors[i], &r.descriptors[i]
		d.entries, d.refund, d.hits = asked.Entries, asked.Refund, uint64(max(a.Hits, 1))
		if asked.Hits != nil {
			d.ownHits, d.hits = true, *asked.Hits
		}
		d.override.multiplier = 1
		if l := asked.Limit; l != nil {
			d.override = override{
				given: true, requests: l.RequestsPerUnit, unit: int32(l.Unit),
				multiplier: max(l.Multiplier, 1), ownMultiplier: l.Multiplier > 0,
			}
		}
	}
	return r
}
