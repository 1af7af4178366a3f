package service

import (
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"example.org/rls/pkg/descriptors"
)

// Request asks for one decision. The service does not change it.
type Request struct {
	// Domain names the rules.
	Domain string
	// Hits is the cost of descriptors that have no Hits of their own; 0 is absent
	// and costs 1.
	Hits        uint32
	Descriptors []Descriptor
	// Pool is the name of a pool of the domain that [Service.Inspect] is asked about in place of
	// Descriptors; else "".
	Pool string
	// Call, if not nil, is what is asked in place of a decision that charges Hits.
	Call *Call
}

// Descriptor is one descriptor of a Request. It may have no entries: Envoy sends
// such descriptors.
type Descriptor struct {
	Entries []descriptors.Entry
	Hits    *uint64   // the cost; 0 charges nothing, nil is the cost of the Request
	Refund  bool      // give the hits back
	Limit   *Override // nil keeps the limits of the rule
}

// Override is a limit that takes the place of the rule's limits. It has the rule's
// strategy and options, or those of the domain's default limit. The service refuses
// a Unit that is not valid and a Multiplier of 0.
type Override struct {
	RequestsPerUnit uint32
	Unit            descriptors.Unit
	Multiplier      uint32 // the window is Multiplier × Unit
	// Seen is the time at which an earlier request brought the limit, where
	// [Service.Inspect] is asked about a request that brings none; else the zero time.
	Seen time.Time
}

// OverridePath stands for the path of a rule where a request brought the limit.
func OverridePath(domain string) string { return domain + ".override" }

// hits is the cost of d, a descriptor of r.
func (r *Request) hits(d *Descriptor) uint64 {
	if r.Call != nil && r.Call.Kind >= Reserve {
		return r.Call.Amount
	}
	if d.Hits != nil {
		return *d.Hits
	}
	return uint64(max(r.Hits, 1))
}

// Caps bounds one request; 0 is no bound. A request beyond them is invalid.
type Caps struct {
	Descriptors int // per request
	Entries     int // per descriptor
	EntryBytes  int // key and value of one entry
}

var errNoDomain = invalid("rate limit domain must not be empty; set the field domain to a domain of the rules")

// validate refuses a request that cannot be decided or is beyond the caps.
func (c *Caps) validate(r *Request) error {
	switch {
	case r.Domain == "":
		return errNoDomain
	case len(r.Descriptors) == 0:
		return invalid("rate limit descriptor list must not be empty; set the field descriptors to at least one descriptor")
	case c.Descriptors > 0 && len(r.Descriptors) > c.Descriptors:
		return invalid("descriptors: %d in one request, at most %d are allowed (REQUEST_MAX_DESCRIPTORS)", len(r.Descriptors), c.Descriptors)
	}
	for i := range r.Descriptors {
		if err := c.entries(r.Descriptors[i].Entries); err != nil {
			return invalid("descriptors[%d].%v", i, err)
		}
	}
	return nil
}

// entries refuses the entries of a descriptor that are beyond the caps.
func (c *Caps) entries(all []descriptors.Entry) error {
	if c.Entries > 0 && len(all) > c.Entries {
		return fmt.Errorf("entries: %d in one descriptor, at most %d are allowed (REQUEST_MAX_ENTRIES)", len(all), c.Entries)
	}
	for i, e := range all {
		if n := len(e.Key) + len(e.Value); c.EntryBytes > 0 && n > c.EntryBytes {
			return fmt.Errorf("entries[%d]: key and value have %d bytes, at most %d are allowed (REQUEST_MAX_ENTRY_BYTES)", i, n, c.EntryBytes)
		}
	}
	return nil
}

// Error is an error with the code that a protocol sends with it. The text of
// InvalidArgument names the field and what would be right, and never has a value of the
// request that may identify a person.
type Error struct {
	Code codes.Code
	text string
}

// Error implements error.
func (e *Error) Error() string { return e.text }

func errorf(code codes.Code, format string, args ...any) error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return errorf(codes.InvalidArgument, format, args...)
}

var errNoRules = errorf(codes.Unavailable, "no rate limit configuration loaded")
