package deploy_test

import (
	"regexp"
	"strings"
	"testing"
)

// changes has a list for each value that the chart's README explains. The last
// element is a change of the value, as --set takes it. The elements before it are
// changes without which it has no effect.
var changes = map[string][]string{
	"nameOverride":                     {"nameOverride=limits"},
	"fullnameOverride":                 {"fullnameOverride=limits"},
	"image.repository":                 {"image.repository=registry.example.com/rls"},
	"image.tag":                        {"image.tag=v2"},
	"image.digest":                     {"image.digest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
	"image.pullPolicy":                 {"image.pullPolicy=Always"},
	"imagePullSecrets":                 {"imagePullSecrets[0].name=registry"},
	"backend.type":                     {"replicas=1", "backend.type=memory"},
	"backend.redis.type":               {"backend.redis.type=CLUSTER"},
	"backend.redis.url":                {"backend.redis.url=valkey:6379"},
	"backend.redis.tls":                {"backend.redis.tls=true"},
	"backend.redis.ca":                 {"backend.redis.tls=true", "backend.redis.ca.secret=redis-tls"},
	"backend.redis.authSecret":         {"backend.redis.authSecret.name=redis"},
	"backend.redis.sentinelAuthSecret": {"backend.redis.type=SENTINEL", "backend.redis.url=primary\\,sentinel:26379", "backend.redis.sentinelAuthSecret.name=redis"},
	"backend.memcache.hosts":           {"backend.type=memcache", "backend.memcache.hosts=memcached-0:11211"},
	"admin.tokenSecret":                {"admin.tokenSecret.name=operators"},
	"rules":                            {"rules.mine=domain: mine"},
	"existingRulesConfigMap":           {"existingRulesConfigMap=mine"},
	"settings":                         {"settings.SHADOW_MODE=true"},
	"extraEnv":                         {"extraEnv[0].name=SHADOW_MODE"},
	"extraVolumes":                     {"extraVolumes[0].name=tls"},
	"extraVolumeMounts":                {"extraVolumeMounts[0].name=tls"},
	"replicas":                         {"replicas=3"},
	"autoscaling.enabled":              {"autoscaling.enabled=true"},
	"autoscaling.minReplicas":          {"autoscaling.enabled=true", "autoscaling.minReplicas=3"},
	"autoscaling.maxReplicas":          {"autoscaling.enabled=true", "autoscaling.maxReplicas=3"},
	"autoscaling.targetCPUUtilizationPercentage": {"autoscaling.enabled=true", "autoscaling.targetCPUUtilizationPercentage=50"},
	"podDisruptionBudget.enabled":                {"podDisruptionBudget.enabled=false"},
	"podDisruptionBudget.maxUnavailable":         {"podDisruptionBudget.maxUnavailable=2"},
	"drainPeriodSeconds":                         {"drainPeriodSeconds=30"},
	"resources":                                  {"resources.requests.cpu=1"},
	"service.annotations":                        {"service.annotations.team=edge"},
	"networkPolicy.enabled":                      {"networkPolicy.enabled=false"},
	"networkPolicy.from":                         {"networkPolicy.from[0].podSelector.matchLabels.team=edge"},
	"networkPolicy.extraEgress":                  {"networkPolicy.extraEgress[0].ports[0].port=4317"},
	"serviceAccount.create":                      {"serviceAccount.create=false"},
	"serviceAccount.name":                        {"serviceAccount.name=edge"},
	"serviceAccount.annotations":                 {"serviceAccount.annotations.team=edge"},
	"podSecurityContext":                         {"podSecurityContext.runAsUser=null"},
	"podAnnotations":                             {"podAnnotations.team=edge"},
	"podLabels":                                  {"podLabels.team=edge"},
	"priorityClassName":                          {"priorityClassName=system-cluster-critical"},
	"nodeSelector":                               {"nodeSelector.team=edge"},
	"tolerations":                                {"tolerations[0].operator=Exists"},
	"affinity":                                   {"affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=rack"},
	"topologySpreadConstraints":                  {"topologySpreadConstraints[0].topologyKey=rack"},
	"metrics.enabled":                            {"metrics.enabled=false"},
	"metrics.serviceMonitor.enabled":             {"metrics.serviceMonitor.enabled=true"},
	"metrics.serviceMonitor.interval":            {"metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.interval=1m"},
	"metrics.serviceMonitor.labels":              {"metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.labels.release=prometheus"},
	"metrics.prometheusRule.enabled":             {"metrics.prometheusRule.enabled=true"},
	"metrics.prometheusRule.labels":              {"metrics.prometheusRule.enabled=true", "metrics.prometheusRule.labels.release=prometheus"},
	"metrics.prometheusRule.runbookURL":          {"metrics.prometheusRule.enabled=true", "metrics.prometheusRule.runbookURL=https://wiki.example.org/rls"},
	"metrics.dashboard.enabled":                  {"metrics.dashboard.enabled=true"},
	"metrics.dashboard.labels":                   {"metrics.dashboard.enabled=true", "metrics.dashboard.labels.team=edge"},
}

// TestEveryValueHasAnEffect: another value makes other manifests.
func TestEveryValueHasAnEffect(t *testing.T) {
	explained := regexp.MustCompile("(?m)^\\| `([^`]+)`").FindAllStringSubmatch(read(t, chart+"/README.md"), -1)
	if len(explained) != len(changes) {
		t.Errorf("README.md explains %d values, %d are changed here", len(explained), len(changes))
	}
	rendered := map[string]string{}
	for _, m := range explained {
		set := changes[m[1]]
		if len(set) == 0 {
			t.Errorf("nothing changes %s", m[1])
			continue
		}
		before := strings.Join(set[:len(set)-1], ",")
		if _, ok := rendered[before]; !ok {
			rendered[before] = render(t, set[:len(set)-1]...).yaml
		}
		if render(t, set...).yaml == rendered[before] {
			t.Errorf("%v changes nothing", set)
		}
	}
}
