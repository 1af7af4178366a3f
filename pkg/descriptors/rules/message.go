package rules

import (
	"slices"

	"example.org/rls/internal/document"
	"example.org/rls/pkg/descriptors"
)

// inMetadata is the key in a descriptor's metadata under which a control plane
// sends the fields that its messages lack.
const inMetadata = "rls"

// unpack returns a descriptor of a message with the fields of its metadata.rls
// where they belong: in its rate_limit or in the descriptor itself.
func (r *reader) unpack(d *document.Value) *document.Value {
	_, metadata := d.Pair("metadata")
	if metadata == nil || !metadata.Has(inMetadata) {
		return d
	}
	_, own := metadata.Pair(inMetadata)
	d = d.Without("metadata")
	if metadata = metadata.Without(inMetadata); len(metadata.Content) > 0 {
		d.Content = append(d.Content, document.Text(d.At, "metadata"), *metadata)
	}
	if own.Kind != document.Map {
		r.Problem(own.At, "must be a mapping, not %s", own.Describe())
		return d
	}
	for i := 0; i < len(own.Content); i += 2 {
		r.unpackField(d, &own.Content[i], &own.Content[i+1])
	}
	// The message's own limit, now complete, is the first of several.
	name, several := own.Pair("rate_limits")
	if _, first := d.Pair("rate_limit"); several != nil && first != nil {
		list := *several
		if list.Kind == document.List {
			list.Content = slices.Insert(slices.Clone(list.Content), 0, *first)
		}
		d = d.Without("rate_limit").Without("rate_limits")
		d.Content = append(d.Content, *name, list)
	}
	return d
}

// unpackField adds a field of metadata.rls to the descriptor d.
func (r *reader) unpackField(d, name, value *document.Value) {
	_, limit := d.Pair("rate_limit")
	i, known := lookup(name.Text, inDescriptor)
	if known && table[i].in != inDescriptor { // on_error is the limit's, not the domain's
		i, _ = lookup(name.Text, inLimit)
	}
	switch {
	case !known:
		r.ProblemOf(name.Text, name.At, "%s", unknownKey(name.Text, func(f *field) bool { return f.lacking }))
	case !table[i].lacking:
		r.ProblemOf(name.Text, name.At, "has a field of its own in the message")
	case table[i].in == inFile:
		r.Problems = append(r.Problems, r.gathered[value]...)
	case table[i].in == inLimit && limit == nil:
		r.ProblemOf(name.Text, name.At, "needs a rate_limit")
	case table[i].in == inLimit:
		limit.Content = append(slices.Clip(limit.Content), *name, *value)
	default:
		d.Content = append(d.Content, *name, *value)
	}
}

// gather reads what descriptors of a message, and those below them, carry of the domain: its pools,
// its plans and its charge.
func (r *reader) gather(items []*document.Value, depth int) {
	for _, d := range items {
		if _, metadata := d.Pair("metadata"); metadata != nil {
			if _, own := metadata.Pair(inMetadata); own != nil && own.Kind == document.Map {
				for i := 0; i < len(own.Content); i += 2 {
					r.gatherField(own.Content[i].Text, &own.Content[i+1])
				}
			}
		}
		if _, below := d.Pair("descriptors"); below != nil && below.Kind == document.List && depth < MaxDepth {
			r.gather(r.list(below), depth+1)
		}
	}
}

// gatherField reads a field of metadata.rls if it is of the domain, and keeps its problems.
func (r *reader) gatherField(name string, v *document.Value) {
	f, before := r.file, len(r.Problems)
	r.Enter(name)
	switch name {
	case "pools":
		r.readNames(&poolNames, v)
	case "plans":
		r.readNames(&planNames, v)
	case "charge":
		switch charge, ok := charge.Read(&r.Reader, v); {
		case !ok: // reported
		case f.charge.at == document.Position{}:
			f.charge = stated[descriptors.Charge]{charge, v.At}
		case charge != f.charge.value:
			r.Problem(v.At, "differs from that in %s; it is the domain's", f.charge.at)
		}
	}
	r.Leave()
	if len(r.Problems) > before {
		r.gathered[v] = slices.Clone(r.Problems[before:])
		r.Problems = r.Problems[:before]
	}
}
