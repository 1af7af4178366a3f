package descriptors

import "go.yaml.in/yaml/v3"

// fileRules is what one file says.
type fileRules struct {
	domain      string
	domainPos   Position
	charge      *Charge // nil when the file does not say
	chargePos   Position
	descriptors []descriptor
	wrong       bool // it has a problem outside of its descriptors, reported
}

// descriptor is one item of a list of descriptors.
type descriptor struct {
	Entry
	pos           Position
	limits        []Limit
	limited       bool // it has a limit or is unlimited
	unlimited     *limitRules
	shadow, quota bool
	detailed      bool
	valueToMetric bool
	share         bool
	metadata      map[string]any
	descriptors   []descriptor
	wrong         bool // it has a problem, reported
}

// name is the descriptor as the reference writes it.
func (d *descriptor) name() string {
	if d.Value == "" {
		return d.Key
	}
	return d.Key + "_" + d.Value
}

func (d *descriptor) isWildcard() bool { return isPattern(d.Key) || isPattern(d.Value) }

// unplaced is how many problems are not those of a descriptor that was read.
func (r *reader) unplaced() int { return len(r.problems) - r.placed }

// read reads the rules of one file.
func (r *reader) read(content []byte) (rules fileRules) {
	defer func() { rules.wrong = r.unplaced() > 0 }()
	rules.domainPos = r.at(1, 1)
	root := r.parse(content)
	if len(r.problems) > 0 {
		return rules
	}
	if root != nil && !isNull(root) {
		if root = target(root); root.Kind != yaml.MappingNode {
			r.problem(root, "", "must be a mapping with domain and descriptors, not %s", describe(root))
			return rules
		}
		rules.domainPos = r.pos(root)
		r.mapping(root, inRoot, "", func(p pair, field string) {
			switch p.key {
			case keyDomain:
				rules.domainPos = r.pos(p.value)
				r.text(p.value, field, &rules.domain)
			case keyCharge:
				rules.chargePos = r.pos(p.value)
				rules.charge = r.charge(p.value, field)
			case keyDescriptors:
				rules.descriptors = r.descriptors(p.value, field)
			}
		})
		if r.carriedCharge != nil {
			rules.charge, rules.chargePos = r.carriedCharge, r.carriedPos
		}
	}
	if rules.domain == "" {
		r.problems = append(r.problems, Problem{rules.domainPos, keyDomain.String(), "must not be empty; name the domain that Envoy's filter asks with"})
	}
	return rules
}

func (r *reader) charge(n *yaml.Node, field string) *Charge {
	var name string
	r.text(n, field, &name)
	for c := ChargeAlways; c <= ChargeAdmitted; c++ {
		if c.String() == name {
			return &c
		}
	}
	r.problem(n, field, "unknown charge %q%s", name, orOneOf(name, []string{"always", "admitted"}))
	return nil
}

func (r *reader) descriptors(n *yaml.Node, field string) []descriptor {
	items := r.list(n, field)
	if len(items) == 0 {
		return nil
	}
	list := make([]descriptor, len(items))
	for i, item := range items {
		before := r.unplaced()
		r.descriptor(item, &list[i])
		own := r.unplaced() - before
		list[i].wrong = own > 0
		r.placed += own
	}
	return list
}

func (r *reader) descriptor(n *yaml.Node, d *descriptor) {
	d.pos = r.pos(n)
	if r.places != nil {
		r.unpack(n)
	}
	var keyNode, shareNode, limitNode, limitsNode *yaml.Node
	var single *limitRules
	var several []limitRules
	r.mapping(n, inDescriptor, "", func(p pair, field string) {
		switch p.key {
		case keyKey:
			keyNode = p.value
			r.text(p.value, field, &d.Key)
		case keyValue:
			r.text(p.value, field, &d.Value)
		case keyRateLimit:
			limitNode = p.name
			single = r.rateLimit(p.value, field, single)
		case keyRateLimits:
			limitsNode = p.name
			several = r.rateLimits(p.value, field)
		case keyDescriptors:
			d.descriptors = r.descriptors(p.value, field)
		case keyShadowMode:
			r.flag(p.value, field, &d.shadow)
		case keyQuotaMode:
			r.flag(p.value, field, &d.quota)
		case keyDetailedMetric:
			r.flag(p.value, field, &d.detailed)
		case keyValueToMetric:
			r.flag(p.value, field, &d.valueToMetric)
		case keyShareThreshold:
			shareNode = p.value
			r.flag(p.value, field, &d.share)
		case keyMetadata:
			r.metadata(p.value, field, &d.metadata)
		}
	})
	if r.overridden > 0 {
		return
	}
	if d.Key == "" {
		if keyNode == nil {
			keyNode = n
		}
		r.problem(keyNode, keyKey.String(), "must not be empty; a descriptor matches entries of one key")
	}
	if d.share && !d.isWildcard() {
		r.problem(shareNode, keyShareThreshold.String(), "needs a wildcard: there is no * in %q", d.name())
	}
	if limitNode != nil && limitsNode != nil && single != nil && several != nil {
		r.problem(limitsNode, keyRateLimits.String(), "excludes rate_limit; move that into the list")
	}
	r.compileLimits(d, single, several)
}

// rule is the rule of d below ancestors, outermost first; nil when d has no
// limit.
func (d *descriptor) rule(path string, ancestors []*descriptor) *Rule {
	if !d.limited {
		return nil
	}
	rule := &Rule{
		Limits: d.limits, Shadow: d.shadow, Quota: d.quota, Metadata: d.metadata,
		Path: path, Pos: d.pos, detailed: d.detailed, fixed: !d.detailed,
	}
	if d.unlimited != nil {
		rule.Unlimited, rule.requests = true, d.unlimited.spec.Requests
		rule.Name, rule.Replaces = d.unlimited.name, d.unlimited.replaceNames()
	}
	for i, a := range ancestors {
		if a.share {
			if rule.Shared == nil {
				rule.Shared = make([]string, len(ancestors))
			}
			rule.Shared[i] = a.sharedPattern()
		}
		rule.fixed = rule.fixed && !isPattern(a.Key) && !(a.valueToMetric && (a.Value == "" || isPattern(a.Value)))
	}
	if !rule.fixed {
		rule.levels = make([]level, len(ancestors))
		for i, a := range ancestors {
			l := level{bare: a.Value == "", shared: a.share, valueInKey: a.valueToMetric}
			if a.isWildcard() {
				l.pattern = a.name()
			}
			rule.levels[i] = l
		}
	}
	return rule
}

// sharedPattern stands for the value in the identity of a shared counter. One
// that comes from a key differs from those that come from values.
func (d *descriptor) sharedPattern() string {
	if isPattern(d.Key) {
		return d.Key + "=" + d.Value
	}
	return d.Value
}
