package backendtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"example.org/rls/pkg/backends"
)

// testScan lists the keys of a store that can list them, and resets the cells by the
// keys alone.
func testScan(t *testing.T, s backends.Store) {
	scanner, err := backends.ScannerOf(s)
	if errors.Is(err, backends.ErrUnsupported) {
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	now := epoch()
	prefix := strings.Trim(fresh("scan"), "{}") + `*?[a]\`
	want := map[string]bool{}
	var b backends.Batch
	for i := range 1500 {
		key := fmt.Sprintf("%s{%d}", prefix, i)
		want[key] = true
		b.Ops = append(b.Ops, counter(key, now, 3, -1))
	}
	other := counter(strings.TrimSuffix(prefix, `\`)+"x", now, 3, -1)
	apply(t, s, &backends.Batch{Ops: append(b.Ops, other)})

	scan := func() map[string]bool {
		found := map[string]bool{}
		if err := backends.Scan(t.Context(), scanner, prefix, func(keys []string) error {
			for _, key := range keys {
				found[key] = true
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return found
	}
	found := scan()
	if len(found) != len(want) {
		t.Errorf("%d keys are listed, want %d", len(found), len(want))
	}
	var resets backends.Batch
	for key := range found {
		if !want[key] {
			t.Errorf("%q is listed", key)
		}
		op := backends.Op{Limit: &backends.Limit{}, Key: key, Now: now}
		resets.Ops = append(resets.Ops, op.Reset())
	}
	apply(t, s, &resets)
	if left := scan(); len(left) != 0 {
		t.Errorf("%d keys are left after resets", len(left))
	}
	holds(t, s, other.Look(), 3) // its key has another prefix

	applyOne(t, s, b.Ops[0])
	refused := errors.New("refused")
	if err := backends.Scan(t.Context(), scanner, prefix, func([]string) error { return refused }); !errors.Is(err, refused) {
		t.Errorf("the caller's error is %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := backends.Scan(ended, scanner, prefix, func([]string) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a scan whose caller has gone: %v", err)
	}
}

// testPages lists the keys in pages while keys are added, so many that the tables of stores grow: each
// key that was there comes once, and no key twice.
func testPages(t *testing.T, of backends.Store) {
	s, err := backends.ScannerOf(of)
	if errors.Is(err, backends.ErrUnsupported) {
		return
	}
	prefix := strings.Trim(fresh("pages"), "{}")
	was := func(i int) string { return fmt.Sprintf("%s{%d}", prefix, i) }
	var all []backends.Op
	for i := range 1500 {
		all = append(all, counter(was(i), epoch(), 3, -1))
	}
	apply(t, s, &backends.Batch{Ops: all})
	found, added, last := map[string]bool{}, 0, ""
	for from := ""; ; {
		keys, next, err := s.Page(t.Context(), prefix, from, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range keys {
			if found[key] || !strings.HasPrefix(key, prefix) {
				t.Errorf("%q comes again, or has another prefix", key)
			}
			found[key] = true
		}
		if from = next; from == "" {
			break
		}
		last = from
		var b backends.Batch
		for range 200 {
			if added++; added <= 10_000 {
				b.Ops = append(b.Ops, counter(fmt.Sprintf("%sadded{%d}", prefix, added), epoch(), 3, -1))
			}
		}
		apply(t, s, &b)
		all = append(all, b.Ops...)
	}
	for i := range 1500 {
		if !found[was(i)] {
			t.Errorf("%q is missing", was(i))
		}
	}
	for i := range all {
		all[i] = all[i].Reset()
	}
	for some := range slices.Chunk(all, 200) {
		apply(t, s, &backends.Batch{Ops: some})
	}
	for _, foreign := range []string{"x", "x" + last, "1:x"} {
		if _, _, err := s.Page(t.Context(), prefix, foreign, 100); !errors.Is(err, backends.ErrMoved) {
			t.Errorf("the position %q: %v, want ErrMoved", foreign, err)
		}
	}
	if _, _, err := s.Page(t.Context(), prefix, last, 100); err != nil {
		t.Errorf("the position %q: %v", last, err)
	}
}
