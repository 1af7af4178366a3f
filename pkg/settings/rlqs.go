package settings

import "time"

// RLQS says how shares of limits are assigned to Envoys that enforce them.
type RLQS struct {
	AssignmentTTL time.Duration `env:"ASSIGNMENT_TTL" default:"15s" min:"1s" max:"1h" help:"How long an assignment holds, in whole seconds: longer than the 5s after which an Envoy reports and so renews it. The share of a silent Envoy then comes back."`
}
