package service

import (
	"fmt"
	"slices"

	"google.golang.org/grpc/codes"

	"example.org/rls/pkg/descriptors"
)

// Request asks for one decision. The service does not change it.
type Request struct {
	// Domain names the rules.
	Domain string `json:"domain"`
	// Hits is the cost of descriptors that have no Hits of their own; 0 is absent
	// and costs 1.
	Hits        uint32       `json:"hits_addend,omitempty"`
	Descriptors []Descriptor `json:"descriptors,omitempty"`
	// Call, if not nil, is what is asked in place of a decision that charges Hits.
	Call *Call `json:"-"`
	// Beyond is a sentence that names the cap which the request exceeds, "" if it exceeds none.
	// Of a request beyond the caps Descriptors is empty, and Charges has an element for each of
	// its descriptors: false if it gives hits back.
	Beyond  string `json:"-"`
	Charges []bool `json:"-"`
}

// Descriptor is one descriptor of a Request. It may have no entries: Envoy sends
// such descriptors.
type Descriptor struct {
	Entries []descriptors.Entry `json:"entries"`
	// Hits is the cost; 0 charges nothing, nil is the cost of the Request.
	Hits   *uint64   `json:"hits_addend,omitempty"`
	Refund bool      `json:"is_negative_hits,omitempty"` // give the hits back
	Limit  *Override `json:"limit,omitempty"`            // nil keeps the limits of the rule
}

// Override is a limit that takes the place of the rule's limits. It has the rule's
// strategy and options, or those of the domain's default limit. The service refuses
// a Unit that is not valid and a Multiplier of 0.
type Override = descriptors.Rate

// OverridePath stands for the path of a rule where a request brought the limit. It is
// [descriptors.Printable].
func OverridePath(domain string) string { return descriptors.Printable(domain) + ".override" }

// Cost is the cost of d, a descriptor of r.
func (r *Request) Cost(d *Descriptor) uint64 {
	if r.Call != nil && r.Call.Kind >= Reserve {
		return r.Call.Amount
	}
	if d.Hits != nil {
		return *d.Hits
	}
	return uint64(max(r.Hits, 1))
}

// Caps bounds one request; 0 is no bound. A request beyond them is denied. The fields with a tag env
// are settings of the process.
type Caps struct {
	// Bytes bounds it on the wire, Descriptors per request, Entries per descriptor.
	Bytes       int `name:"max-bytes" env:"MAX_BYTES" default:"4194304" min:"1024" max:"67108864" unit:"bytes" help:"Largest gRPC request (one up to four times as large gets REQUEST_BEYOND_CAPS), and largest /json body."`
	Descriptors int `name:"max-descriptors" env:"MAX_DESCRIPTORS" default:"1024" min:"1" max:"10000" help:"Most descriptors in a request."`
	Entries     int `name:"max-entries" env:"MAX_ENTRIES" default:"512" min:"1" max:"10000" help:"Most entries in a descriptor."`
	// Refuse makes a request beyond the caps an error, in place of a denial.
	Refuse bool `kong:"-"`
}

var errNoDomain = Wrong("rate limit domain must not be empty; set the field domain to a domain of the rules")

// Validate refuses a request that cannot be decided.
func (r *Request) Validate() error {
	switch {
	case r.Domain == "":
		return errNoDomain
	case len(r.Descriptors)+len(r.Charges) == 0:
		return Wrong("rate limit descriptor list must not be empty; set the field descriptors to at least one descriptor")
	}
	return nil
}

// exceed decides a request beyond the caps: it is denied if it charges hits, and nothing is
// charged or given back.
func (o *Outcome) exceed(r *Request) error {
	cfg := &o.plan.cfg
	o.seen.Beyond = r.Beyond
	if cfg.Caps.Refuse {
		return Wrong("%s", r.Beyond)
	}
	o.Beyond = true
	denied := slices.Contains(r.Charges, true) && (r.Call == nil || !r.Call.always())
	o.Over, o.seen.Spared = denied && !cfg.ShadowMode, denied && cfg.ShadowMode
	return nil
}

// Check refuses the entries of a descriptor that are beyond the caps.
func (c *Caps) Check(all []descriptors.Entry) error {
	if c.Entries > 0 && len(all) > c.Entries {
		return fmt.Errorf("entries: %d in one descriptor, at most %d are allowed (REQUEST_MAX_ENTRIES)", len(all), c.Entries)
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

// Errorf returns an [Error].
func Errorf(code codes.Code, format string, args ...any) error {
	return &Error{code, fmt.Sprintf(format, args...)}
}

// Wrong returns an [Error] with the code InvalidArgument.
func Wrong(format string, args ...any) error {
	return Errorf(codes.InvalidArgument, format, args...)
}

// ErrNoRules is the error of every request before rules are loaded.
var ErrNoRules = Errorf(codes.Unavailable, "no rate limit configuration loaded")
