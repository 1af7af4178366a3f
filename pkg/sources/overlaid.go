package sources

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/descriptors"
	"example.org/rls/pkg/descriptors/rules"
)

// Overlaid is a source of rules with overlays, which stand in files of their own. It publishes both
// together, and again whenever one of them changes.
type Overlaid struct {
	Source
	// Overlays are the files with overlays. Run sets their Gone.
	Overlays *Files
	// Again has Source publish its rules again, from another goroutine. If it is nil, the last rules
	// that Source has published are kept in memory.
	Again func()
}

// Run implements [Source]. It asks Source for rules when it has read the overlays. Calls of publish
// come from two goroutines and do not overlap.
func (o *Overlaid) Run(ctx context.Context, publish Publish) error {
	ctx, cancel := context.WithCancel(ctx)
	both := &pair{publish: publish, again: o.Again, read: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		o.Overlays.Overlay, o.Overlays.Gone = true, func(bool) {}
		ended <- o.Overlays.Run(ctx, both.overlay)
	}()
	select {
	case err := <-ended:
		cancel()
		if errors.Is(err, ErrNoFolder) {
			err = fmt.Errorf("OVERLAY_FILE: %s does not exist; want a file with overlays, or a folder of such files", o.Overlays.Root)
		}
		return err
	case <-both.read:
	}
	err := o.Source.Run(ctx, both.rules)
	cancel()
	return errors.Join(err, <-ended)
}

// pair is rules and overlays that are published together.
type pair struct {
	publish Publish
	again   func()
	read    chan struct{} // closed when the overlays were read

	mu         sync.Mutex
	overlays   []*rules.File
	files      []*rules.File // with again nil
	unreadable error
	heard      bool // there were rules
}

// rules is the Publish of the source of the rules.
func (p *pair) rules(files []*rules.File, unreadable error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.again == nil {
		p.files, p.unreadable, p.heard = files, unreadable, true
	}
	return p.publish(slices.Concat(files, p.overlays), unreadable)
}

// overlay is the Publish of the files with overlays.
func (p *pair) overlay(files []*rules.File, unreadable error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.overlays = files; unreadable != nil {
		problem := document.Problem{Position: descriptors.Position{File: "OVERLAY_FILE"}, Message: unreadable.Error()}
		p.overlays = []*rules.File{{Name: problem.File, Overlay: true, Problems: rules.Problems{problem}}}
	}
	select {
	case <-p.read:
	default:
		close(p.read)
		return nil
	}
	switch {
	case p.again != nil:
		p.again()
	case p.heard:
		_ = p.publish(slices.Concat(p.files, p.overlays), p.unreadable) // which logs its error
	}
	return nil
}
