{{/*
A workload's pods under a candidate. A chart that has this one as its dependency writes into the template of its pods,
each at its place:

  metadata:
    labels:
      {{- include "imas.labels" . | nindent 8 }}
  spec:
    volumes:
      {{- include "imas.volumes" . | nindent 8 }}
    initContainers:
      {{- include "imas.initContainers" . | nindent 8 }}
    containers:
      - name: app
        env:
          {{- include "imas.env" . | nindent 12 }}
          (the container's own variables come below: of two with the same name the last counts)
        volumeMounts:
          {{- include "imas.volumeMounts" . | nindent 12 }}

and into its values: imas: {candidate: jemalloc, workload: web}. Without a candidate nothing but labels is written.
*/}}

{{- define "imas.variables" -}}
{{- $name := .Values.imas.candidate | default "system" -}}
{{- if ne $name "system" -}}
{{- get .Values.imas.candidates $name | required (printf "imas: there is no candidate %s; 'imas kube component' writes them" $name) | toYaml -}}
{{- else -}}
{}
{{- end -}}
{{- end -}}

{{- define "imas.labels" -}}
imas.io/workload: {{ .Values.imas.workload | default .Release.Name | quote }}
imas.io/candidate: {{ .Values.imas.candidate | default "system" | quote }}
{{- end -}}

{{- define "imas.env" -}}
{{- range $name, $value := include "imas.variables" . | fromYaml }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "imas.volumes" -}}
{{- if include "imas.variables" . | fromYaml }}
- name: imas-libraries
  emptyDir: {}
{{- end }}
{{- end -}}

{{- define "imas.volumeMounts" -}}
{{- if include "imas.variables" . | fromYaml }}
- name: imas-libraries
  mountPath: {{ .Values.imas.at }}
  readOnly: true
{{- end }}
{{- end -}}

{{- define "imas.initContainers" -}}
{{- if include "imas.variables" . | fromYaml }}
{{ list .Values.imas.copier | toYaml }}
{{- end }}
{{- end -}}
