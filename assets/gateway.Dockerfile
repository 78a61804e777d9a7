# The gateway's image: copied together, nothing is run, so that an arm64 image builds on a machine of any kind. Its files
# belong to who runs it: those of a checkout under a umask of 077 are readable by their owner alone.
FROM public.ecr.aws/docker/library/python:3.13-slim
COPY --chown=65532:65532 packages /packages
COPY --chown=65532:65532 app /app
ENV PYTHONPATH=/app/assets:/app:/packages PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /app/assets
USER 65532:65532
ENTRYPOINT ["python", "-m", "gateway"]
