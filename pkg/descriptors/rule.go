package descriptors

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/algorithms"
)

// Charge says which limits of a domain a denied request is charged to.
type Charge uint8

const (
	// ChargeAlways charges every descriptor, also when the request is denied.
	// Fixed windows count denied hits, too.
	ChargeAlways Charge = iota
	// ChargeAdmitted decides the request as a whole: when an enforced limit
	// denies it, no limit is charged.
	ChargeAdmitted
	// ChargeDenying is ChargeAdmitted, except that a fixed window counts the
	// hits that it denies itself. A setting can ask for it, rules cannot.
	ChargeDenying
)

// String is always or admitted, as in the rules, or denying.
func (c Charge) String() string {
	return [...]string{"always", "admitted", "denying"}[c]
}

// Policy says how a limit is decided while the store cannot decide it: the field
// on_error of the rules.
type Policy uint8

const (
	// PolicyError leaves the limit undecided: the request fails unless another
	// limit denies it.
	PolicyError Policy = iota
	// PolicyAllow lets the hits pass.
	PolicyAllow
	// PolicyDeny denies the hits.
	PolicyDeny
	// PolicyLocal counts the hits in this process, against its share of the limit.
	PolicyLocal

	// Policies is the number of policies.
	Policies = int(iota)
)

var policyNames = [Policies]string{"error", "allow", "deny", "local"}

// String is the policy's name in the rules.
func (p Policy) String() string { return policyNames[p] }

// PolicyNames lists the names of the policies in the order of their constants.
func PolicyNames() []string { return policyNames[:] }

// Limit is one limit of a rule.
type Limit struct {
	*algorithms.Limit
	Name       string   // the name that Replaces of other limits refers to; may be ""
	Replaces   []string // names of limits that do not count in requests that match this one
	Unit       Unit
	Multiplier uint32 // the window is Multiplier × Unit; at least 1
	OnError    Policy // decides the limit when the store cannot
	// WrittenBurst is the burst of the rules, or 0 when Spec.Burst is the
	// strategy's default. Like Spec.Burst it is multiplied by Share.
	WrittenBurst uint32
	// GivesWay: the strategy, and perhaps the burst, are DEFAULT_STRATEGY and DEFAULT_BURST. They
	// make no row of a table wrong.
	GivesWay bool
	// Share is the part of the limit as written that Spec has; 0 is all of it.
	// WrittenRequests are the requests as written.
	Share           algorithms.Percent
	WrittenRequests uint32
	// Shadow: the limit is watched: it is decided and counted, in a cell of its own, and
	// changes neither an answer nor what other limits are charged.
	Shadow bool
	// WatchedPart is the part of its keys for which the limit is watched; it is enforced for the
	// others. Both count in the same cells.
	WatchedPart algorithms.Percent
	// Thresholds are in ascending order; nil without any.
	Thresholds []Threshold
	// Borrow says where the hits go that the limit denies itself; nil if they are denied.
	Borrow *Borrow
	// As is the limit of the rule in whose place the amounts of a row stand, and as which
	// metrics count this one; nil of a limit that is counted as itself.
	As *Limit
	// Laid has the fields that overlays have set; nil without any.
	Laid Laid
	// Raise is the grant that has raised the limit; nil of a limit as the rules have it.
	Raise *Raise
}

// Laid says where the fields of a limit come from that overlays have set: the place of each, by its
// name.
type Laid map[string]string

// String has the fields of each place together: "burst, strategy from overlay.yaml:4".
func (l Laid) String() string {
	fields := map[string][]string{} // by place
	for _, name := range slices.Sorted(maps.Keys(l)) {
		fields[l[name]] = append(fields[l[name]], name)
	}
	var parts []string
	for _, place := range slices.Sorted(maps.Keys(fields)) {
		parts = append(parts, strings.Join(fields[place], ", ")+" from "+place)
	}
	return strings.Join(parts, "; ")
}

// Tried reports whether the limit is watched for some of its keys.
func (l *Limit) Tried() bool { return l.Shadow || l.WatchedPart > 0 }

// Rollout is the part of its keys for which a limit that is not in shadow mode is enforced.
func (l *Limit) Rollout() algorithms.Percent { return algorithms.Whole - l.WatchedPart }

// EnforcedFor reports whether the limit is enforced for the key whose id AppendID has made
// without a prefix. The keys of a smaller rollout are among those of a larger one.
func (l *Limit) EnforcedFor(id []byte) bool {
	place, _ := bits.Mul64(xxhash.Sum64(id), uint64(algorithms.Whole)) // of the key, in millionths of all keys
	return !l.Shadow && place < uint64(l.Rollout())
}

// Title tells people which limit of a rule it is: its Name, or else its strategy and rate, such
// as "fixed_window 20 per 2 hours".
func (l *Limit) Title() string {
	if l.Name != "" {
		return l.Name
	}
	return l.Strategy.String() + " " + l.rate()
}

// rate is the rate in words: "20 per 2 hours".
func (l *Limit) rate() string {
	return fmt.Sprintf("%d per %s", l.Requests, Window(l.Calendar.Unit(l.Window), l.Window))
}

// Words is the limit's window in words, in the unit of its rule: "15 minutes", "month",
// "calendar month".
func (l *Limit) Words() string {
	if l.Calendar.On {
		return Window(l.Calendar.Unit(l.Window), l.Window)
	}
	return Period(l.Unit, l.Multiplier)
}

// Choice is how people choose the limit among several: by its Name, or else by its rate, such as
// "20 per 2 hours".
func (l *Limit) Choice() string { return cmp.Or(l.Name, l.rate()) }

// Is reports whether people mean the limit by a text: its Name, its Title, its rate as in
// Choice, or as [ParseLimit] reads it.
func (l *Limit) Is(text string) bool {
	if text == l.Choice() || text == l.Title() || text == l.rate() || l.Raise != nil && l.Raise.Of.Is(text) {
		return true
	}
	rate, err := ParseLimit(text)
	return err == nil && rate.RequestsPerUnit == l.Requests && time.Duration(rate.Multiplier)*rate.Unit.Duration() == l.Window
}

// Rule has the limits of one descriptor of the rules. It does not change once
// its tree is made.
type Rule struct {
	// Limits has at least one limit, unless the rule is Unlimited.
	Limits    []Limit
	Unlimited bool
	// Name, Replaces and Laid belong to an unlimited rule. A limited rule has them in
	// each limit.
	Name     string
	Replaces []string
	Laid     Laid

	Shadow bool // decide and count, but never deny
	Quota  bool // counts for quota mode

	// Metadata goes back to Envoy with the reply. structpb.NewStruct takes it. It
	// is nil when the rules have none.
	Metadata map[string]any
	// Shared says for each entry how its value is in names (share_threshold, mask, reserve). It is
	// nil when all entries are in names as they are. See [AppendID].
	Shared []Naming
	// Brought is Shared of a limit that a request brings for the rule: with LeftOut and Mask only.
	Brought []Naming
	// FixedMetricKey: MetricKey is Path for all requests.
	FixedMetricKey bool
	// Path names the rule as the reference does: domain.key_value.key2.
	Path string
	Pos  document.Position

	// DetailedMetric names the metric by the request's own keys and values.
	DetailedMetric bool
	// Plan is the name of the plan that the limits are from; "" if they are the rule's own.
	Plan string
	// RowPlan is the plan that a row of the rule's table gives; "" for values without one.
	RowPlan string
	// Table has the variants of the rule; nil without one.
	Table *Table
	// Together: the keys of the limits share a Redis Cluster slot, as those of another variant
	// must.
	Together bool
	// Pool is the name of the pool that the rule is; "" of a rule for descriptors.
	Pool string
	// Requests is the requests_per_unit that an unlimited rule was written
	// with. It has no effect.
	Requests uint32

	base *Rule // of a variant, the rule that has the table
	// ungranted is the rule without the grants that have made the variant; nil if none has.
	ungranted *Rule
	number    uint32 // of the amounts of a variant
	depth     uint32 // the number of entries of a descriptor

	way []*Node // from the outermost descriptor to that of the rule; nil if FixedMetricKey and Shared is nil
}

// Several reports whether several limits of the rule can deny, so that they are charged
// together.
func (r *Rule) Several() bool {
	n := 0
	for i := range r.Limits {
		if !r.Limits[i].Shadow {
			n++
		}
	}
	return n > 1
}

// Reserves reports whether the value of a request's last entry is the id of a reservation, because a limit of
// the rule holds reservations. A nil Rule holds none.
func (r *Rule) Reserves() bool {
	return r != nil && slices.ContainsFunc(r.Limits, func(l Limit) bool { return l.Reserve.TTL > 0 })
}

// OneSlot reports whether all keys of the rule's limits share a Redis Cluster slot.
func (r *Rule) OneSlot() bool { return r.Together || r.Several() || r.Reserves() }

// Main is the limit in whose place a request can bring its own: the first that is not in
// shadow mode, or else the first. It is nil without limits.
func (r *Rule) Main() *Limit {
	if len(r.Limits) == 0 {
		return nil
	}
	first := slices.IndexFunc(r.Limits, func(l Limit) bool { return !l.Shadow })
	return &r.Limits[max(first, 0)]
}

// Base is the rule that the rules have: r itself, or the one of which r is a variant.
func (r *Rule) Base() *Rule {
	if r.base != nil {
		return r.base
	}
	return r
}

// Variants are r and the variants whose limits are not r's but for the amounts.
func (r *Rule) Variants() []*Rule {
	all := r.Parts()
	if t := r.Table; t != nil {
		for i, like := range t.likes {
			if like != nil && like != t.plans[i] {
				all = append(all, like)
			}
		}
	}
	return all
}

// Threshold is a used part of a limit, and what happens to requests that pass while that
// part or more is used.
type Threshold struct {
	At algorithms.Percent // 1% to 99%
	// Headers are added to the request that goes upstream, ResponseHeaders to the response.
	Headers, ResponseHeaders []Header
	// Metadata goes back to Envoy with the reply. structpb.NewStruct takes it. It is nil
	// when the rules have none.
	Metadata map[string]any
	Delay    time.Duration // for which the answer is held, at most a second
}

// Header is a header of HTTP.
type Header struct{ Name, Value string }

// Reached is the highest of the limit's thresholds that used hits of capacity reach; nil if
// they reach none.
func (l *Limit) Reached(used, capacity int64) (highest *Threshold) {
	for i := range l.Thresholds {
		if t := &l.Thresholds[i]; max(0, used)*int64(algorithms.Whole) >= capacity*int64(t.At) {
			highest = t
		}
	}
	return highest
}

// Borrow says from which pool a limit takes the hits that it denies itself.
type Borrow struct {
	From string             // the name of the pool
	Most algorithms.Percent // of the pool that one key may have borrowed; above 0
	Pool *Rule              // see NewPool
	// Cell counts what one key has borrowed: the pool's limit with Most of its amounts.
	Cell Limit
}

// NewPool returns the pool of a domain that has that limit. It matches no descriptor.
func NewPool(domain, name string, l Limit, pos document.Position) *Rule {
	return &Rule{Limits: []Limit{l}, Pool: name, Path: Printable(domain + ".pool_" + name), Pos: pos, FixedMetricKey: true}
}

// PoolMark is the mark of the limits of pools, with which no descriptor has their keys.
const PoolMark = "~pool"

// Lend lets b borrow from pool. mark is that of the limit that borrows. The error is that of
// [algorithms.New].
func (b *Borrow) Lend(pool *Rule, mark string) (err error) {
	b.Pool, b.Cell = pool, pool.Limits[0]
	spec := b.Cell.Spec
	spec.Requests, spec.Burst, spec.Mark = b.Most.Of(spec.Requests), b.Most.Of(spec.Burst), "~borrow"+mark
	b.Cell.Limit, err = algorithms.New(spec)
	return err
}

// AppendID appends what ends the name of a caller, as [AppendID] makes it, in the keys of
// Cell.
func (b *Borrow) AppendID(dst []byte) []byte {
	return appendEscaped(append(dst, "|borrow="...), b.From, inValue)
}

// PoolEntries are the entries whose name, as [AppendID] makes it, is that of the pool.
func (r *Rule) PoolEntries() []Entry { return []Entry{{Key: "pool", Value: r.Pool}} }
