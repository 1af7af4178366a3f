package yaml

import (
	"example.org/rls/internal/document"
	"example.org/rls/pkg/descriptors/rules"
)

// ReadInParts reads a text in parts of at least size bytes; nil if it has to be read as a whole.
func ReadInParts(t Text, size int) *document.Value {
	r := newReader(t.Name)
	return r.inParts(t.Content, size)
}

// ReadWhole reads a text as a whole.
func ReadWhole(t Text) *rules.File { return newReader(t.Name).read(t.Content, 1<<40) }
