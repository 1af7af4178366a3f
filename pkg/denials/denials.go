// Package denials remembers the last denials of limits: of whom, by which limit, and when
// the same request would pass.
//
// It observes decisions. A denial is a row of at most some 400 bytes, whose memory is used
// again when a newer one takes its place. Of long keys and values the beginning is kept.
//
// Above 2,000 denials a second a random sample is kept, and each row says how many denials
// it stands for. A second in which they begin keeps its first 2,000 all the same, then as many
// of every second one, and so on.
package denials

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"example.org/rls/internal/bounded"
	"example.org/rls/pkg/algorithms"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/service"
)

// Options configures Denials.
type Options struct {
	// Keep is the number of rows that are kept, at least 1.
	Keep int
	// Hash puts hashes in place of values; nil keeps the values.
	Hash *service.ValueHash
	// Random draws the sample; nil is math/rand/v2.
	Random func() uint32
}

// Denials has the last denials. It is safe for concurrent use.
type Denials struct {
	hash   *service.ValueHash
	sample *bounded.Sample // of requests
	second atomic.Int64    // since the epoch: of the newest denial

	recently recently // which counters were denied in this second
	changes  atomic.Uint64

	mu     sync.Mutex
	began  time.Time // since when denials are remembered
	rows   bounded.Ring[row]
	groups groups
}

var _ service.Observer = (*Denials)(nil)

// New returns Denials that have seen nothing.
func New(o Options) *Denials {
	return &Denials{
		began: time.Now().UTC(), hash: o.Hash, sample: bounded.NewSample(looks, o.Random), recently: newRecently(),
		rows: bounded.NewRing[row](o.Keep), groups: newGroups(min(o.Keep, maxGroups)),
	}
}

// row is a denial by one limit.
type row struct {
	fact
	cost     int64
	sampled  uint32 // denials that the row stands for
	strategy algorithms.Strategy
	onError  descriptors.Policy // decided unless counted
	counted  bool
	shadow   bool
}

// fact is the part of a row that outlives the process.
type fact struct {
	At       int64 // µs since the epoch
	Window   time.Duration
	Wait     time.Duration // until the same request would pass
	Rule     string        // path; "" if the limit came with the request
	Name     string
	Plan     string `json:",omitempty"` // that the limit is from
	Limit    uint32
	Calendar bool
	Cut      bool   // of the text bytes are left out
	Text     []byte // the domain, and keys and values in turn, each behind a byte with its length
}

const (
	// maxDomain and maxBytes bound the bytes of a domain, and of the keys and values.
	maxDomain = 48
	maxBytes  = 160
	// maxText bounds the text of a row: … has 3 bytes.
	maxText = 1 + maxDomain + 3 + maxBytes + descriptors.MaxShortened*2*(1+3)
	// step is what the memory of a text is rounded up to, so that it is seldom too short.
	step = 32
)

// Observe keeps the denials of a request that was answered.
func (d *Denials) Observe(o *service.Observation) {
	for i := range o.Verdicts {
		if o.Denied(&o.Verdicts[i]) {
			d.keep(o)
			return
		}
	}
}

// keep keeps the denials of a request if the sample has it, and the first ones of their counters in a
// second in any case.
func (d *Denials) keep(o *service.Observation) {
	const perSecond = 1e6
	second := o.At / perSecond
	if second != d.second.Load() {
		d.turn(second)
	}
	weight, crowd := d.sample.Weight(), d.sample.Largest() > 1
	var room [maxText]byte
	for verdicts := range o.ByDescriptor() {
		var text []byte
		var cut bool
		for i := range verdicts {
			v := &verdicts[i]
			if !o.Denied(v) {
				continue
			}
			stands := weight
			if crowd && d.recently.first(v.Key, second) { // the sample stands for the others of its counter
				stands = 1
			}
			if stands == 0 {
				continue
			}
			if text == nil {
				text, cut = d.appendText(room[:0], o.Domain, v.Entries)
			}
			d.mu.Lock()
			if weight > 0 {
				d.sample.Looked(weight)
				d.rows.Next().set(o, v, weight, text, cut)
			}
			d.groups.add(o, v, stands, text, cut)
			d.changes.Add(1)
			d.mu.Unlock()
		}
	}
}

// looks is the number of denials a second of which all are kept.
const looks = 2000

// late is the number of seconds by which a request may come after a newer one.
const late = 60

// turn begins a second, unless it is an earlier one by at most late: decisions may wait. It
// sets the share of requests that are kept, so that about looks are kept if as many are
// denied as in the second before.
func (d *Denials) turn(second int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := d.second.Load()
	if second <= last && second >= last-late {
		return
	}
	seconds := math.Inf(1) // of denials long ago
	if second == last+1 {
		seconds = 1
	}
	d.sample.Renew(seconds)
	d.second.Store(second)
}

func (r *row) set(o *service.Observation, v *service.Verdict, sampled uint32, text []byte, cut bool) {
	memory := r.Text
	if cap(memory) < len(text) {
		memory = make([]byte, 0, (len(text)+step-1)/step*step)
	}
	*r = row{
		fact: fact{
			At: o.At, Window: v.Limit.Window, Wait: v.Is.RetryAfter, Name: v.Limit.Name, Plan: v.Plan(), Limit: v.Limit.Requests,
			Calendar: v.Limit.Calendar.On, Cut: cut, Text: append(memory[:0], text...),
		},
		cost: int64(v.Hits), sampled: sampled, strategy: v.Limit.Strategy, onError: v.Limit.OnError,
		counted: v.Counted, shadow: o.Spares(v),
	}
	if v.Rule != nil {
		r.Rule = v.Rule.Path
	}
}

// appendText appends the text of a row, and reports whether it is cut.
func (d *Denials) appendText(text []byte, domain string, entries []descriptors.Entry) ([]byte, bool) {
	if d.hash != nil {
		hashed := make([]descriptors.Entry, len(entries))
		for i, e := range entries {
			hashed[i] = descriptors.Entry{Key: e.Key, Value: d.hash.Hash(e.Value)}
		}
		entries = hashed
	}
	var room [descriptors.MaxShortened]descriptors.Entry
	short := descriptors.AppendShortened(room[:0], entries, maxBytes)
	name := descriptors.Shortened(domain, maxDomain)
	text = append(append(text, byte(len(name))), name...)
	for _, e := range short {
		text = append(append(text, byte(len(e.Key))), e.Key...)
		text = append(append(text, byte(len(e.Value))), e.Value...)
	}
	return text, len(name) != len(domain) || !slices.Equal(short, entries)
}

// field cuts the first field off the text of a row.
func field(text []byte) (first, rest []byte) {
	n := 1 + int(text[0])
	return text[1:n], text[n:]
}

// contains reports whether any part of a key or value, or of its [descriptors.Printable], is sought.
func (r *row) contains(sought string) bool {
	_, rest := field(r.Text)
	for len(rest) > 0 {
		var part []byte
		part, rest = field(rest)
		if bytes.Contains(part, []byte(sought)) || !utf8.Valid(part) && strings.Contains(descriptors.Printable(string(part)), sought) {
			return true
		}
	}
	return sought == ""
}
