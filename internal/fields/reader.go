package fields

import (
	"fmt"
	"strings"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/descriptors"
)

// Reader collects the problems of a document. The zero Reader is ready for use.
type Reader struct {
	Problems document.Problems
	path     []step // to the value that is read
}

// step is a key of a mapping, or an item of a list.
type step struct {
	key  string
	item int // the index of an item + 1; 0 for a key
}

// Enter says that the value of a key is read until Leave.
func (r *Reader) Enter(key string) { r.path = append(r.path, step{key: key}) }

// EnterItem says that the item i of a list is read until Leave.
func (r *Reader) EnterItem(i int) { r.path = append(r.path, step{item: i + 1}) }

// Leave leaves the value of the last Enter or EnterItem.
func (r *Reader) Leave() { r.path = r.path[:len(r.path)-1] }

// Detached calls read, and leaves the keys and items around it out of its paths.
func (r *Reader) Detached(read func()) {
	outside := r.path
	r.path = r.path[len(r.path):]
	read()
	r.path = outside
}

// Path names the value that is read, as in a.b[1].
func (r *Reader) Path() string {
	if len(r.path) == 1 && r.path[0].item == 0 {
		return r.path[0].key
	}
	var b strings.Builder
	for _, s := range r.path {
		switch {
		case s.item > 0:
			fmt.Fprintf(&b, "[%d]", s.item-1)
		case b.Len() > 0:
			b.WriteString("." + s.key)
		default:
			b.WriteString(s.key)
		}
	}
	return b.String()
}

// Problem reports a fault of the value that is read.
func (r *Reader) Problem(at descriptors.Position, format string, args ...any) {
	r.Problems = append(r.Problems, document.Problem{Position: at, Field: r.Path(), Message: fmt.Sprintf(format, args...)})
}

// ProblemOf reports a fault of the key name of the value that is read.
func (r *Reader) ProblemOf(name string, at descriptors.Position, format string, args ...any) {
	r.Enter(name)
	r.Problem(at, format, args...)
	r.Leave()
}
