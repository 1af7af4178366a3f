package descriptors

import (
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Load compiles the rules of the files. Its error is [Problems], all there
// are, and then there is no tree: half a set of rules would let in what the
// other half denies. With Options.SkipWrong there is a tree all the same, of
// the rules without problems, unless none are left. What is odd but has a
// meaning comes back as warnings. No files at all are no rules.
func Load(files []File, opts Options) (*Tree, []Problem, error) {
	readers := make([]*reader, len(files))
	rules := make([]fileRules, len(files))
	inParallel(len(files), func(i int) {
		readers[i] = &reader{file: files[i].Name, places: files[i].Places, limits: limitCache{}}
		rules[i] = readers[i].read(files[i].Content)
	})

	defer func() {
		for _, r := range readers {
			r.nodes.recycle()
		}
	}()
	c := compiler{opts: opts, tree: &Tree{domains: make(map[string]*Domain)}}
	var warnings Problems
	for i, r := range readers {
		c.problems = append(c.problems, r.problems...)
		warnings = append(warnings, r.warnings...)
		if !(rules[i].wrong && opts.SkipWrong) {
			c.file(&rules[i])
		}
	}
	warnings.sort()
	if len(c.problems) == 0 {
		return c.finish(), warnings, nil
	}
	c.problems.sort()
	if opts.SkipWrong && len(c.tree.domains) > 0 {
		return c.finish(), warnings, c.problems
	}
	return nil, nil, c.problems
}

// inParallel calls do for 0 to n-1 on all processors.
func inParallel(n int, do func(i int)) {
	var wg sync.WaitGroup
	next := make(chan int)
	for range min(n, runtime.GOMAXPROCS(0)) {
		wg.Go(func() {
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
}

// turns lets others have the processor now and then, so that nobody waits for
// the ten milliseconds after which Go takes it from whoever loads ten thousand
// rules.
type turns int

// next is a step of some hundred nanoseconds.
func (n *turns) next() {
	const steps = 64
	if *n++; *n%steps == 0 {
		runtime.Gosched()
	}
}

// compiler adds the rules of files to a tree.
type compiler struct {
	turns    turns
	opts     Options
	tree     *Tree
	problems Problems
}

func (c *compiler) problem(at Position, field, message string) {
	c.problems = append(c.problems, Problem{at, field, message})
}

func (c *compiler) file(f *fileRules) {
	if f.domain == "" {
		return // reported, or not readable
	}
	d := c.tree.domains[f.domain]
	if d == nil {
		d = &Domain{Name: f.domain, Charge: c.opts.Charge, pos: f.domainPos}
		c.tree.domains[f.domain] = d
	} else if !c.opts.MergeDomains {
		c.problem(f.domainPos, keyDomain.String(), strconv.Quote(f.domain)+" is already in "+d.pos.String()+"; put the descriptors together, or allow domains to be merged")
		return
	}
	c.charge(d, f)
	c.descriptors(&d.root, f.domain, f.descriptors, nil)
}

func (c *compiler) charge(d *Domain, f *fileRules) {
	if f.charge == nil {
		return
	}
	if d.chargePos != nil && d.Charge != *f.charge {
		c.problem(f.chargePos, keyCharge.String(), "differs from that of the same domain in "+d.chargePos.String())
		return
	}
	d.Charge, d.chargePos = *f.charge, &f.chargePos
}

// descriptors adds a list below a node. path names the parent, ancestors are
// the descriptors on the way to it, outermost first.
func (c *compiler) descriptors(parent *node, path string, list []descriptor, ancestors []*descriptor) {
	depth := len(ancestors)
	parent.grow(len(list))
	for i := range list {
		c.turns.next()
		d := &list[i]
		if d.Key == "" || d.wrong && c.opts.SkipWrong {
			continue // reported
		}
		if first := parent.child(d.Entry); first != nil {
			c.problem(d.pos, "", "repeats "+d.describe()+" of "+first.pos.String()+"; a descriptor may be listed once")
			continue
		}
		name := path + "." + d.name()
		ancestors = append(ancestors[:depth], d)
		n := &node{rule: d.rule(name, ancestors), pos: d.pos}
		parent.add(d.Entry, n)
		c.descriptors(n, name, d.descriptors, ancestors)
	}
}

// describe is a descriptor in a message.
func (d *descriptor) describe() string {
	s := "key " + strconv.Quote(d.Key)
	if d.Value != "" {
		s += ", value " + strconv.Quote(d.Value)
	}
	return s
}

func (c *compiler) finish() *Tree {
	t := c.tree
	for _, d := range t.domains {
		t.sorted = append(t.sorted, d)
	}
	slices.SortFunc(t.sorted, func(a, b *Domain) int { return strings.Compare(a.Name, b.Name) })
	return t
}
