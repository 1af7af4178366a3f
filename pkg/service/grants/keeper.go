// Package grants knows the limits that operators have raised for single callers until a time.
//
// It promises that all processes with one store decide by the same grants within a second of a change;
// that each grant ends by its own time on the store's clock, also while the store is away; and that nothing
// of the store is taken for a grant unless it is one, within bounds. It leaves the raised limits to
// [descriptors.Grants], and to the service where they act.
package grants

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"example.org/rls/pkg/backends"
	"example.org/rls/pkg/descriptors"
)

const (
	// Longest is the longest time for which a grant may be in force.
	Longest = 31 * 24 * time.Hour
	// Most is the largest number of grants, and mostBytes that of the bytes of all of them.
	Most      = 10_000
	mostBytes = 8 << 20
	// longestName bounds the name of a caller, and longestText the JSON of a grant, in bytes.
	longestName = 4096
	longestText = 16 << 10
	// every is the time between two looks at the version of the grants.
	every = 500 * time.Millisecond
	// apart is the least time between two of them, however much is hurried.
	apart = every / 4
	// patience bounds a look. A change waits as long as the store does.
	patience = 2 * time.Second
	// mostRemoved bounds the ended grants that leave the store with a new one.
	mostRemoved = 100
)

// Options are those of a [Keeper].
type Options struct {
	Store backends.Notes
	// Name is the name of the grants in the store, a key that no cell has.
	Name string
	// Changed is told of the grants in force whenever they change, and of the grants that came, went or
	// were replaced. Its calls come one after the other.
	Changed func(now *descriptors.Grants, changed []*descriptors.Grant)
	Log     *slog.Logger
}

// Keeper knows the grants of a store, while Run runs. It is safe for concurrent use.
type Keeper struct {
	Options
	hurry chan struct{}
	known atomic.Bool // the store has told the grants

	mu      sync.Mutex // held while the store is asked
	version string
	held    map[string]note // that the store has, by field; grants that have ended leave with the next one
	failed  bool            // the last look

	inForce atomic.Pointer[map[string]*descriptors.Grant] // by field
}

// note is a text that the store has, and the grant that was read from it; nil if the text is no grant.
type note struct {
	text  string
	grant *descriptors.Grant
}

// NewKeeper returns a Keeper that knows no grants.
func NewKeeper(o Options) *Keeper {
	k := &Keeper{Options: o, hurry: make(chan struct{}, 1)}
	k.inForce.Store(&map[string]*descriptors.Grant{})
	return k
}

// Known reports whether the store has told its grants since the start.
func (k *Keeper) Known() bool { return k.known.Load() }

// Run looks at the version of the grants every half second until ctx ends, and at the grants when it
// has changed. While the store is away the last grants stay, until they end.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		_ = k.Look(ctx) // it logs
		rest := time.After(apart)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-k.hurry:
			select {
			case <-ctx.Done():
				return nil
			case <-rest:
			}
		}
	}
}

// Hurry has Run look before long.
func (k *Keeper) Hurry() {
	select {
	case k.hurry <- struct{}{}:
	default:
	}
}

// Look takes over the grants of the store if they have changed, and logs the first of failures.
func (k *Keeper) Look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.read(ctx)
	switch failed := err != nil; {
	case failed == k.failed || errors.Is(ctx.Err(), context.Canceled):
	case failed && k.Known() && errors.Is(err, backends.ErrUnavailable): // the log has the outage already
	case failed && !k.Known():
		k.Log.Warn("the grants until a time are not known until the store tells them: limits are those of the rules", "error", err)
		k.failed = true
	case failed:
		k.Log.Warn("the grants until a time cannot be read: the last ones stay until they end", "error", err)
		k.failed = true
	default:
		k.Log.Info("the store tells the grants until a time again", "grants", len(k.All()))
		k.failed = false
	}
	k.prune()
	return err
}

// read reads the grants if their version has changed. k.mu is held.
func (k *Keeper) read(ctx context.Context) error {
	version, err := k.Store.NotesVersion(ctx, k.Name)
	if err != nil || version == k.version && k.Known() {
		return err
	}
	version, texts, err := k.Store.Notes(ctx, k.Name, backends.NotesBound{Fields: Most, Bytes: 2 * mostBytes})
	if err != nil {
		return err
	}
	held, wrong := map[string]note{}, []error(nil)
	for name, text := range texts {
		g, err := grantIn(name, text, k.Store.Now())
		if err != nil {
			wrong = append(wrong, err)
		}
		held[name] = note{text, g}
	}
	if len(wrong) > 0 {
		k.Log.Warn("the store has grants that are none", "number", len(wrong), "first", wrong[0])
	}
	k.version, k.held = version, held
	k.known.Store(true)
	k.publish()
	return nil
}

// prune drops the grants that have ended.
func (k *Keeper) prune() {
	now := k.Store.Now()
	for _, g := range *k.inForce.Load() {
		if over(g, now) {
			k.publish()
			return
		}
	}
}

// publish puts in force the grants that the store has and that have not ended. A grant that was in force
// before stays the same value, with the limits that were made for it. k.mu is held.
func (k *Keeper) publish() {
	now, before, all := k.Store.Now(), *k.inForce.Load(), map[string]*descriptors.Grant{}
	var changed []*descriptors.Grant
	for name, n := range k.held {
		was := before[name]
		switch {
		case n.grant == nil || over(n.grant, now):
			continue
		case was != nil && was.ID == n.grant.ID:
			all[name] = was
			continue
		case was != nil:
			changed = append(changed, was)
		}
		all[name], changed = n.grant, append(changed, n.grant)
	}
	for name, was := range before {
		if all[name] == nil {
			changed = append(changed, was)
		}
	}
	if len(changed) == 0 {
		return
	}
	k.inForce.Store(&all)
	k.Changed(descriptors.NewGrants(slices.Collect(maps.Values(all))), changed)
}

// All are the grants in force, the newest first.
func (k *Keeper) All() []*descriptors.Grant {
	now := k.Store.Now()
	all := slices.DeleteFunc(slices.Collect(maps.Values(*k.inForce.Load())), func(g *descriptors.Grant) bool { return over(g, now) })
	slices.SortFunc(all, func(a, b *descriptors.Grant) int { return b.Time.Compare(a.Time) })
	return all
}

var (
	// ErrFull is the error of a grant too many.
	ErrFull = fmt.Errorf("%d grants until a time are in force, which is the most: rls revoke ends one", Most)
	// ErrTooLong is the error of a grant that takes too much room.
	ErrTooLong = fmt.Errorf("the grant is too long, or the grants in force have more than %d MiB together", mostBytes>>20)
)

// Add puts a grant in force, in place of one for the same counter, and gives it an ID. This process
// decides by it when Add returns, and others within a second. Its errors are ErrFull, ErrTooLong and those
// of the store.
func (k *Keeper) Add(ctx context.Context, g *descriptors.Grant) error {
	g.ID = strings.ToLower(rand.Text()[:10])
	text, err := json.Marshal(g)
	if err != nil {
		return err
	}
	bytes := len(text) + len(field(g))
	for name, old := range *k.inForce.Load() {
		bytes += len(name) + len(old.Reason) + len(old.Rule) + len(old.Caller) + 300
	}
	if len(g.Caller) > longestName || len(text) > longestText || bytes > mostBytes {
		return ErrTooLong
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	c := backends.NotesChange{Set: field(g), Text: string(text), Remove: map[string]string{}, Most: Most, Until: g.Until}
	for name, n := range k.held {
		if n.grant != nil && over(n.grant, k.Store.Now()) && len(c.Remove) < mostRemoved {
			c.Remove[name] = n.text
		}
	}
	return k.change(ctx, g, c)
}

// Revoke ends the grant with that ID and returns it; nil if there is none in force. A later grant that takes
// its place meanwhile stays. Its errors are those of the store.
func (k *Keeper) Revoke(ctx context.Context, id string) (*descriptors.Grant, error) {
	err := k.Look(ctx)
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, g := range *k.inForce.Load() {
		if g.ID == id && !over(g, k.Store.Now()) {
			return g, k.change(ctx, nil, backends.NotesChange{Remove: map[string]string{name: k.held[name].text}})
		}
	}
	return nil, err
}

// change changes the grants in the store, and takes over what the store then has: all of it only if other
// processes have changed it meanwhile. g is the grant that comes, nil if none does. k.mu is held.
func (k *Keeper) change(ctx context.Context, g *descriptors.Grant, c backends.NotesChange) error {
	before, after, err := k.Store.ChangeNotes(ctx, k.Name, c)
	switch {
	case errors.Is(err, backends.ErrNotesFull):
		return ErrFull
	case err != nil:
		return err
	case before != k.version || !k.Known():
		return k.read(ctx)
	}
	for name, text := range c.Remove {
		if name != c.Set && k.held[name].text == text {
			delete(k.held, name)
		}
	}
	if g != nil {
		k.held[c.Set] = note{c.Text, g}
	}
	k.version = after
	k.publish()
	return nil
}

// Save writes the grants in force, as Load reads them.
func (k *Keeper) Save(w io.Writer) error { return json.NewEncoder(w).Encode(k.All()) }

// Load puts grants of an earlier process in force that have not ended.
func (k *Keeper) Load(r io.Reader) error {
	var earlier []*descriptors.Grant
	if err := json.NewDecoder(r).Decode(&earlier); err != nil {
		return err
	}
	ctx := context.Background()
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, g := range earlier {
		text, err := json.Marshal(g)
		if err == nil && !over(g, k.Store.Now()) {
			c := backends.NotesChange{Set: field(g), Text: string(text), Most: Most, Until: g.Until}
			_, _, err = k.Store.ChangeNotes(ctx, k.Name, c)
		}
		if err != nil {
			return err
		}
	}
	return k.read(ctx)
}

// over reports whether a grant has ended at a time in µs.
func over(g *descriptors.Grant, now int64) bool { return g.Until.UnixMicro() <= now }

// field is the name of a grant in the store: there is one for each counter.
func field(g *descriptors.Grant) string { return g.Caller + " " + g.Counter }

// grantIn is the grant that the store has in a field. Its error says why the text is no grant.
func grantIn(name, text string, now int64) (*descriptors.Grant, error) {
	g, err := new(descriptors.Grant), errors.New("it is too long")
	if len(text) <= longestText && len(name) <= longestText {
		err = json.Unmarshal([]byte(text), g)
	}
	if err != nil {
		return nil, fmt.Errorf("the grant of %.40q in the store cannot be read: %w", name, err)
	}
	longest := time.UnixMicro(now).Add(Longest + time.Minute) // clocks of processes differ
	wrong := ""
	switch {
	case name != field(g):
		wrong = "it stands in the field of another counter"
	case g.ID == "" || g.Domain == "" || g.Rule == "":
		wrong = "id, domain or rule is missing"
	case len(g.ID)+len(g.Who)+len(g.Reason) > longestName:
		wrong = "its texts are too long"
	case g.Until.After(longest):
		wrong = "it ends in more than 31 days"
	case (g.Hits > 0) == (g.Rate != nil):
		wrong = "want either hits or a limit"
	case g.Rate != nil && !g.Rate.Unit.Valid():
		wrong = "its limit has no unit"
	}
	if wrong != "" {
		return nil, fmt.Errorf("the grant %.40q of the store is left out: %s", cmp.Or(g.ID, name), wrong)
	}
	return g, nil
}
