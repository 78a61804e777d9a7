# The gateway's image: copied together, nothing is run, so that an arm64 image builds on a machine of any kind.
FROM public.ecr.aws/docker/library/python:3.13-slim
COPY packages /packages
COPY app /app
ENV PYTHONPATH=/app/assets:/app:/packages PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
WORKDIR /app/assets
USER 65532:65532
ENTRYPOINT ["python", "-m", "gateway"]
