{{/* The labels of all objects. Selectors do not have them, so that they may change. */}}
{{- define "sharder.labels" -}}
{{ include "sharder.helmLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* The labels of what Prometheus selects: monitoring.labels win over commonLabels. */}}
{{- define "sharder.monitoringLabels" -}}
{{ include "sharder.helmLabels" . }}
{{- with merge (deepCopy .Values.monitoring.labels) .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "sharder.helmLabels" -}}
app.kubernetes.io/part-of: sharder
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") | quote }}
{{- end }}

{{/* The image. A digest belongs to the version of the chart, not to a tag of yours. */}}
{{- define "sharder.image" -}}
{{- with .Values.image.registry }}{{ trimSuffix "/" . }}/{{ end -}}
nodekeeper-sharder:{{ .Values.image.tag | default .Chart.AppVersion -}}
{{- if not .Values.image.tag }}{{ with .Values.image.digests.sharder }}@{{ . }}{{ end }}{{ end -}}
{{- end }}
