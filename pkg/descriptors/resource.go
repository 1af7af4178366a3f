package descriptors

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// keyRLS is the key in a descriptor's metadata under which a control plane
// sends what its messages have no fields for.
const keyRLS = "rls"

// carried reports whether k travels in metadata.rls: all that the messages of
// a control plane do not have.
func (k key) carried() bool {
	return keys[k].ours || k == keyValueToMetric || k == keyShareThreshold
}

// unpack moves the fields in a descriptor's metadata.rls to where they belong:
// what is about a limit to its rate_limit, what is about the domain to the
// reader, the rest to the descriptor itself.
func (r *reader) unpack(d *yaml.Node) {
	metadata := field(d, keyMetadata.String())
	if metadata == nil {
		return
	}
	if rls := field(metadata, keyRLS); rls != nil {
		remove(metadata, keyRLS)
		r.unpackFields(d, rls)
	}
}

func (r *reader) unpackFields(d, rls *yaml.Node) {
	if rls.Kind != yaml.MappingNode {
		r.problem(rls, "", "must be a mapping, not %s", describe(rls))
		return
	}
	limit := field(d, keyRateLimit.String())
	for i := 0; i < len(rls.Content); i += 2 {
		name, value := rls.Content[i], rls.Content[i+1]
		k, known := keysByName[name.Value]
		switch {
		case !known || !k.carried():
			r.problem(name, name.Value, "%s", notCarried(name.Value))
		case k == keyCharge:
			r.unpackCharge(value)
		case k == keyRateLimits && limit != nil:
			// The message's own limit is the first of several.
			remove(d, keyRateLimit.String())
			if value.Kind == yaml.SequenceNode {
				value.Content = slices.Insert(value.Content, 0, limit)
			}
			d.Content = append(d.Content, name, value)
		case keys[k].places&inRateLimit == 0:
			d.Content = append(d.Content, name, value)
		case limit == nil:
			r.problem(name, name.Value, "needs a rate_limit")
		default:
			limit.Content = append(limit.Content, name, value)
		}
	}
}

// unpackCharge reads the domain's charge, which any of its descriptors may
// carry.
func (r *reader) unpackCharge(n *yaml.Node) {
	charge := r.charge(n, keyCharge.String())
	switch {
	case charge == nil: // reported
	case r.carriedCharge == nil:
		r.carriedCharge, r.carriedPos = charge, r.pos(n)
	case *charge != *r.carriedCharge:
		r.problem(n, keyCharge.String(), "differs from that in %s; it is the domain's", r.carriedPos)
	}
}

func notCarried(name string) string {
	var known []string
	for k := range keyCount {
		switch {
		case k.carried():
			known = append(known, k.String())
		case k.String() == name:
			return "has a field of its own in the message"
		}
	}
	if s := suggest(name, known); s != "" {
		return "unknown key" + s
	}
	return "unknown key; known here: " + strings.Join(known, ", ")
}

// field is the value of a key of a mapping without aliases and merge keys; nil
// when there is none.
func field(n *yaml.Node, name string) *yaml.Node {
	if n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// remove takes a key and its value out of a mapping.
func remove(n *yaml.Node, name string) {
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			n.Content = slices.Delete(n.Content, i, i+2)
			return
		}
	}
}
