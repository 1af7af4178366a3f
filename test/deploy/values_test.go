package deploy_test

import (
	"regexp"
	"strings"
	"testing"
)

// changes is another value for each that the chart's README explains, as --set
// takes it, after what it needs to count.
var changes = map[string][]string{
	"nameOverride":             {"nameOverride=limits"},
	"fullnameOverride":         {"fullnameOverride=limits"},
	"image.repository":         {"image.repository=registry.example.com/rls"},
	"image.tag":                {"image.tag=v2"},
	"image.digest":             {"image.digest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
	"image.pullPolicy":         {"image.pullPolicy=Always"},
	"imagePullSecrets":         {"imagePullSecrets[0].name=registry"},
	"backend.type":             {"backend.type=redis"},
	"backend.redis.type":       {"backend.type=redis", "backend.redis.type=CLUSTER"},
	"backend.redis.url":        {"backend.type=redis", "backend.redis.url=valkey:6379"},
	"backend.redis.tls":        {"backend.type=redis", "backend.redis.tls=true"},
	"backend.redis.authSecret": {"backend.type=redis", "backend.redis.authSecret.name=redis"},
	"backend.memcache.hosts":   {"backend.type=memcache", "backend.memcache.hosts=memcached-0:11211"},
	"rules":                    {"rules.mine=domain: mine"},
	"existingRulesConfigMap":   {"existingRulesConfigMap=mine"},
	"settings":                 {"settings.SHADOW_MODE=true"},
	"extraEnv":                 {"extraEnv[0].name=SHADOW_MODE"},
	"extraVolumes":             {"extraVolumes[0].name=tls"},
	"extraVolumeMounts":        {"extraVolumeMounts[0].name=tls"},
	"replicas":                 {"backend.type=redis", "replicas=2"},
	"autoscaling.enabled":      {"backend.type=redis", "autoscaling.enabled=true"},
	"autoscaling.minReplicas":  {"backend.type=redis", "autoscaling.enabled=true", "autoscaling.minReplicas=3"},
	"autoscaling.maxReplicas":  {"backend.type=redis", "autoscaling.enabled=true", "autoscaling.maxReplicas=3"},
	"autoscaling.targetCPUUtilizationPercentage": {"backend.type=redis", "autoscaling.enabled=true", "autoscaling.targetCPUUtilizationPercentage=50"},
	"podDisruptionBudget.enabled":                {"podDisruptionBudget.enabled=false"},
	"podDisruptionBudget.maxUnavailable":         {"podDisruptionBudget.maxUnavailable=2"},
	"drainPeriodSeconds":                         {"drainPeriodSeconds=30"},
	"resources":                                  {"resources.requests.cpu=1"},
	"service.annotations":                        {"service.annotations.team=edge"},
	"networkPolicy.enabled":                      {"networkPolicy.enabled=false"},
	"networkPolicy.extraEgress":                  {"networkPolicy.extraEgress[0].ports[0].port=4317"},
	"serviceAccount.create":                      {"serviceAccount.create=false"},
	"serviceAccount.name":                        {"serviceAccount.name=edge"},
	"serviceAccount.annotations":                 {"serviceAccount.annotations.team=edge"},
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
	"metrics.dashboard.enabled":                  {"metrics.dashboard.enabled=true"},
	"metrics.dashboard.labels":                   {"metrics.dashboard.enabled=true", "metrics.dashboard.labels.team=edge"},
}

// TestEveryValueCounts: another one makes other manifests.
func TestEveryValueCounts(t *testing.T) {
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
