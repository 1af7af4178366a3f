package rules

import "slices"

// inMetadata is the key in a descriptor's metadata under which a control plane
// sends the fields that its messages lack.
const inMetadata = "rls"

// unpack returns a descriptor of a message with the fields of its metadata.rls
// where they belong: in its rate_limit or in the descriptor itself. The charge
// of the domain goes to the reader.
func (r *reader) unpack(d *Value) *Value {
	_, metadata := d.pair("metadata")
	if metadata == nil || !metadata.has(inMetadata) {
		return d
	}
	_, own := metadata.pair(inMetadata)
	d = d.without("metadata")
	if metadata = metadata.without(inMetadata); len(metadata.Content) > 0 {
		d.Content = append(d.Content, Text(d.At, "metadata"), *metadata)
	}
	if own.Kind != Map {
		r.problem(own.At, "", "must be a mapping, not %s", own.describe())
		return d
	}
	for i := 0; i < len(own.Content); i += 2 {
		r.unpackField(d, own.Content[i], own.Content[i+1])
	}
	// The message's own limit, now complete, is the first of several.
	name, several := own.pair("rate_limits")
	if _, first := d.pair("rate_limit"); several != nil && first != nil {
		list := *several
		if list.Kind == List {
			list.Content = slices.Insert(slices.Clone(list.Content), 0, *first)
		}
		d = d.without("rate_limit").without("rate_limits")
		d.Content = append(d.Content, *name, list)
	}
	return d
}

// unpackField adds a field of metadata.rls to the descriptor d.
func (r *reader) unpackField(d *Value, name, value Value) {
	_, limit := d.pair("rate_limit")
	i, known := lookup(name.Text, inDescriptor)
	if known && fields[i].in != inDescriptor { // on_error is the limit's, not the domain's
		i, _ = lookup(name.Text, inLimit)
	}
	switch {
	case !known:
		r.problem(name.At, name.Text, "%s", unknownKey(name.Text, func(f *field) bool { return f.lacking }))
	case !fields[i].lacking:
		r.problem(name.At, name.Text, "has a field of its own in the message")
	case fields[i].in == inFile:
		r.unpackCharge(&value)
	case fields[i].in == inLimit && limit == nil:
		r.problem(name.At, name.Text, "needs a rate_limit")
	case fields[i].in == inLimit:
		limit.Content = append(slices.Clip(limit.Content), name, value)
	default:
		d.Content = append(d.Content, name, value)
	}
}

// unpackCharge reads the domain's charge, which any of its descriptors may
// carry.
func (r *reader) unpackCharge(v *Value) {
	charge := r.charge(v, "charge")
	switch {
	case charge == nil: // reported
	case r.charged == nil:
		r.charged, r.chargedAt = charge, v.At
	case *charge != *r.charged:
		r.problem(v.At, "charge", "differs from that in %s; it is the domain's", r.chargedAt)
	}
}

// without returns a copy of a mapping that lacks a key.
func (v *Value) without(key string) *Value {
	c := *v
	c.Content = make([]Value, 0, len(v.Content)+8)
	for i := 0; i < len(v.Content); i += 2 {
		if v.Content[i].Text != key {
			c.Content = append(c.Content, v.Content[i], v.Content[i+1])
		}
	}
	return &c
}
