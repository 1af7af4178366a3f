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
	"nameOverride":                               {"nameOverride=limits"},
	"fullnameOverride":                           {"fullnameOverride=limits"},
	"commonLabels":                               {"commonLabels.team=edge"},
	"commonAnnotations":                          {"commonAnnotations.team=edge"},
	"image.repository":                           {"image.repository=registry.example.com/rls"},
	"image.tag":                                  {"image.tag=v2"},
	"image.digest":                               {"image.digest=sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"},
	"image.pullPolicy":                           {"image.pullPolicy=Always"},
	"imagePullSecrets":                           {"imagePullSecrets[0].name=registry"},
	"backend.type":                               {"replicas=1", "backend.type=memory"},
	"backend.redis.type":                         {"backend.redis.type=CLUSTER"},
	"backend.redis.url":                          {"backend.redis.url=valkey:6379"},
	"backend.redis.tls":                          {"backend.redis.tls=true"},
	"backend.redis.ca":                           {"backend.redis.tls=true", "backend.redis.ca.secret=redis-tls"},
	"backend.redis.authSecret":                   {"backend.redis.authSecret.name=redis"},
	"backend.redis.sentinelAuthSecret":           {"backend.redis.type=SENTINEL", "backend.redis.url=primary\\,sentinel:26379", "backend.redis.sentinelAuthSecret.name=redis"},
	"backend.memcache.hosts":                     {"backend.type=memcache", "backend.memcache.hosts=memcached-0:11211"},
	"admin.tokenSecret":                          {"admin.tokenSecret.name=operators"},
	"admin.tls.secret":                           {"admin.tokenSecret.name=operators", "admin.tls.secret=tls"},
	"admin.tls.ca":                               {"admin.tokenSecret.name=operators", "admin.tls.secret=tls", "admin.tls.ca=ca.crt"},
	"admin.tls.certManager.enabled":              {"admin.tokenSecret.name=operators", "admin.tls.certManager.issuerRef.name=ca", "admin.tls.certManager.enabled=true"},
	"admin.tls.certManager.issuerRef":            {"admin.tokenSecret.name=operators", "admin.tls.certManager.enabled=true,admin.tls.certManager.issuerRef.name=a", "admin.tls.certManager.issuerRef.name=b"},
	"admin.fleet.enabled":                        {"admin.tokenSecret.name=operators", "admin.tls.secret=tls", "admin.fleet.enabled=true"},
	"admin.fleet.insecure":                       {"admin.tokenSecret.name=operators", "admin.fleet.enabled=true", "admin.fleet.insecure=true"},
	"admin.fleet.from":                           {"admin.tokenSecret.name=operators", "admin.tls.secret=tls", "admin.fleet.enabled=true", "admin.fleet.from[0].podSelector.matchLabels.team=edge"},
	"grpc.tls.secret":                            {"grpc.tls.secret=tls"},
	"rules":                                      {"rules.mine=domain: mine"},
	"existingRulesConfigMap":                     {"existingRulesConfigMap=mine"},
	"existingRulesConfigMaps":                    {"existingRulesConfigMaps={mine}"},
	"rulesVolume":                                {"rulesVolume.persistentVolumeClaim.claimName=rules"},
	"settings":                                   {"settings.SHADOW_MODE=true"},
	"extraEnv":                                   {"extraEnv[0].name=SHADOW_MODE"},
	"extraVolumes":                               {"extraVolumes[0].name=tls"},
	"extraVolumeMounts":                          {"extraVolumeMounts[0].name=tls"},
	"extraContainers":                            {"extraContainers[0].name=proxy"},
	"extraInitContainers":                        {"extraInitContainers[0].name=git-sync"},
	"replicas":                                   {"replicas=3"},
	"autoscaling.enabled":                        {"autoscaling.enabled=true"},
	"autoscaling.minReplicas":                    {"autoscaling.enabled=true", "autoscaling.minReplicas=3"},
	"autoscaling.maxReplicas":                    {"autoscaling.enabled=true", "autoscaling.maxReplicas=3"},
	"autoscaling.targetCPUUtilizationPercentage": {"autoscaling.enabled=true", "autoscaling.targetCPUUtilizationPercentage=50"},
	"autoscaling.metrics":                        {"autoscaling.enabled=true", "autoscaling.metrics[0].type=External"},
	"autoscaling.behavior":                       {"autoscaling.enabled=true", "autoscaling.behavior.scaleDown.stabilizationWindowSeconds=600"},
	"podDisruptionBudget.enabled":                {"podDisruptionBudget.enabled=false"},
	"podDisruptionBudget.maxUnavailable":         {"podDisruptionBudget.maxUnavailable=2"},
	"drainPeriodSeconds":                         {"drainPeriodSeconds=30"},
	"resources":                                  {"resources.requests.cpu=1"},
	"service.labels":                             {"service.labels.team=edge"},
	"service.trafficDistribution":                {"service.trafficDistribution=PreferClose"},
	"service.headless.labels":                    {"service.headless.labels.team=edge"},
	"service.headless.annotations":               {"service.headless.annotations.team=edge"},
	"service.annotations":                        {"service.annotations.team=edge"},
	"networkPolicy.enabled":                      {"networkPolicy.enabled=false"},
	"networkPolicy.from":                         {"networkPolicy.from[0].podSelector.matchLabels.team=edge"},
	"networkPolicy.httpFrom":                     {"networkPolicy.httpFrom[0].podSelector.matchLabels.team=edge"},
	"networkPolicy.metricsFrom":                  {"networkPolicy.metricsFrom[0].podSelector.matchLabels.team=edge"},
	"networkPolicy.storeTo":                      {"networkPolicy.storeTo[0].podSelector.matchLabels.app=redis"},
	"networkPolicy.extraEgress":                  {"networkPolicy.extraEgress[0].ports[0].port=4317"},
	"serviceAccount.create":                      {"serviceAccount.create=false"},
	"serviceAccount.name":                        {"serviceAccount.name=edge"},
	"serviceAccount.annotations":                 {"serviceAccount.annotations.team=edge"},
	"serviceAccount.labels":                      {"serviceAccount.labels.team=edge"},
	"deployment.labels":                          {"deployment.labels.team=edge"},
	"deployment.annotations":                     {"deployment.annotations.team=edge"},
	"podSecurityContext":                         {"podSecurityContext.runAsUser=null"},
	"podAnnotations":                             {"podAnnotations.team=edge"},
	"podLabels":                                  {"podLabels.team=edge"},
	"priorityClassName":                          {"priorityClassName=system-cluster-critical"},
	"nodeSelector":                               {"nodeSelector.team=edge"},
	"tolerations":                                {"tolerations[0].operator=Exists"},
	"affinity":                                   {"affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey=rack"},
	"topologySpreadConstraints":                  {"topologySpreadConstraints[0].topologyKey=rack"},
	"dnsPolicy":                                  {"dnsPolicy=Default"},
	"dnsConfig":                                  {"dnsConfig.searches={example.org}"},
	"probes.startup":                             {"probes.startup.failureThreshold=300"},
	"probes.readiness":                           {"probes.readiness.periodSeconds=5"},
	"probes.liveness":                            {"probes.liveness=null"},
	"metrics.enabled":                            {"metrics.enabled=false"},
	"metrics.serviceMonitor.enabled":             {"metrics.serviceMonitor.enabled=true"},
	"metrics.serviceMonitor.interval":            {"metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.interval=1m"},
	"metrics.serviceMonitor.labels":              {"metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.labels.release=prometheus"},
	"metrics.serviceMonitor.annotations":         {"metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.annotations.team=edge"},
	"metrics.serviceMonitor.relabelings":         {"metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.relabelings[0].targetLabel=team"},
	"metrics.serviceMonitor.metricRelabelings":   {"metrics.serviceMonitor.enabled=true", "metrics.serviceMonitor.metricRelabelings[0].action=drop"},
	"metrics.prometheusRule.annotations":         {"metrics.prometheusRule.enabled=true", "metrics.prometheusRule.annotations.team=edge"},
	"metrics.prometheusRule.alerts":              {"metrics.prometheusRule.enabled=true", "metrics.prometheusRule.alerts.RLSSlow.threshold=0.02"},
	"metrics.prometheusRule.enabled":             {"metrics.prometheusRule.enabled=true"},
	"metrics.prometheusRule.labels":              {"metrics.prometheusRule.enabled=true", "metrics.prometheusRule.labels.release=prometheus"},
	"metrics.prometheusRule.runbookURL":          {"metrics.prometheusRule.enabled=true", "metrics.prometheusRule.runbookURL=https://wiki.example.org/rls"},
	"metrics.dashboard.enabled":                  {"metrics.dashboard.enabled=true"},
	"metrics.dashboard.labels":                   {"metrics.dashboard.enabled=true", "metrics.dashboard.labels.team=edge"},
	"metrics.dashboard.annotations":              {"metrics.dashboard.enabled=true", "metrics.dashboard.annotations.team=edge"},
	"tests.client":                               {"tests.client={--domain=edge,--descriptor=user=ann}"},
	"tests.tls":                                  {"tests.tls={--tls}"},
}

// TestEveryValueHasAnEffect: another value makes other manifests, or lets the chart be
// rendered at all.
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
		if m[1] == "admin.fleet.insecure" {
			render(t, set...) // TestChartRefusesWrongValues has the values without it
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
