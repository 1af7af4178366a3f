package settings

import "time"

// RLQS says how shares of limits are assigned to Envoys that enforce them.
type RLQS struct {
	AssignmentTTL time.Duration `env:"ASSIGNMENT_TTL" default:"15s" min:"1s" max:"1h" help:"How long an assignment holds, in whole seconds: more than the 5s after which Envoy's reports renew it. A silent Envoy's share then returns."`
}
