{{/* The labels of all objects. Selectors do not have them, so that they may change. */}}
{{- define "placement.labels" -}}
{{ include "placement.helmLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The labels of what Prometheus selects: monitoring.labels win over commonLabels. */}}
{{- define "placement.monitoringLabels" -}}
{{ include "placement.helmLabels" . }}
{{- with merge (deepCopy .Values.monitoring.labels) .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "placement.helmLabels" -}}
app.kubernetes.io/part-of: placement
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") | quote }}
{{- end }}

{{/* The image. A digest belongs to the version of the chart, not to a tag of yours. */}}
{{- define "placement.image" -}}
{{- with .Values.image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
nodekeeper-placement:{{ .Values.image.tag | default .Chart.AppVersion -}}
{{- if not .Values.image.tag }}{{ with .Values.image.digests.placement }}@{{ . }}{{ end }}{{ end -}}
{{- end }}

{{/* The labels of the controller's pods, by which they are selected. */}}
{{- define "placement.podLabels" -}}
app.kubernetes.io/name: placement-controller
app.kubernetes.io/component: controller
app.kubernetes.io/part-of: placement
{{- end }}
